{{ config(staged=false) }}

{{ empty_select({
    'model': 'string',
    'state': 'string',
    'reason': 'string',
    'since': 'timestamp',
}) }}
