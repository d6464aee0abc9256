{{ config(staged=false) }}

{{ tidemark.nothing_new({
    'model': 'string',
    'state': 'string',
    'reason': 'string',
    'since': 'timestamp',
}) }}
