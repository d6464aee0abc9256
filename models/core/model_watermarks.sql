{{ config(staged=false) }}

{{ tidemark.nothing_new({
    'model': 'string',
    'source': 'string',
    'checkpoint_id': 'bigint',
    'position': 'bigint',
    'definition_hash': 'string',
    'columns': 'string',
    'release_id': 'bigint',
    'view_tables': 'string',
    'last_op': 'bigint',
    'has_integer_keys': 'boolean',
}) }}
