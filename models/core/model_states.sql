{{ config(staged=false) }}

{{ nothing_new({
    'model': 'string',
    'state': 'string',
    'reason': 'string',
    'since': 'timestamp',
}) }}
