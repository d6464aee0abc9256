{{ tidemark.nothing_new({
    'release_id': 'bigint',
    'checkpoint_id': 'bigint',
    'model': 'string',
    '`table`': 'string',
    'snapshot_id': 'bigint',
    'branch': 'string',
    'marks': 'array<struct<source: string, checkpoint_id: bigint, position: bigint>>',
    'definition_hash': 'string',
    'columns': 'string',
    'published_at': 'timestamp',
    'view_tables': 'string',
    'evaluation': 'string',
}) }}
