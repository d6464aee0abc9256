{#-
  The columns that a definition brings, as [{name, type}] without `_row_key`; checked against its settings. One that is
  published unchanged has been checked: its columns are known, without types. Names differ by more than upper and lower case.
-#}
{% macro bucket_columns(sql, settings, model, plan) -%}
    {%- if plan.is_published -%}
        {%- set known = [] -%}
        {%- for name in plan.published_columns -%}
            {%- do known.append({'name': name}) -%}
        {%- endfor -%}
        {{ return(known) }}
    {%- endif -%}
    {%- if tidemark.is_lookup(model) -%}{%- do tidemark.check_lookup(compiled_code, model) -%}{%- endif -%}
    {%- set columns = [] -%}
    {%- set types = {} -%}
    {%- for column in tidemark._described('query ' ~ sql) -%}
        {%- set name = column.name -%}
        {%- if name | lower in types -%}
            {%- do tidemark._refuse(model, "selects two columns named '" ~ name ~ "'", 'Give one of them another name') -%}
        {%- elif name | lower in tidemark.own_columns() + tidemark._taken_columns() -%}
            {%- do tidemark._refuse(model, "selects a column named '" ~ name ~ "', which every bucket table has", 'Select it under another name') -%}
        {%- elif not tidemark._is_storable(column.type) -%}
            {%- do tidemark._refuse(model, "selects '" ~ name ~ "' as " ~ column.type ~ ', which no table can have', 'Cast it, or name the fields of each struct by letters, digits and _, no digit first, and each once, capitals aside') -%}
        {%- endif -%}
        {%- do types.update({name | lower: column.type}) -%}
        {%- if name | lower != '_row_key' -%}
            {%- do columns.append({'name': name, 'type': tidemark._kept_type(column.type)}) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for name in settings.bucket_by + [settings.object_id] + (settings.unique_key or ['_row_key']) -%}
        {%- set type = types.get(name | lower) -%}
        {%- if not type -%}
            {%- do tidemark._refuse(model, "meta names a column '" ~ name ~ "' that the query does not select", 'It selects ' ~ columns | map(attribute='name') | join(', ')) -%}
        {%- elif modules.re.match('binary$|(map|array|struct)<', type) -%}
            {%- do tidemark._refuse(model, "meta names the column '" ~ name ~ "', whose type " ~ type ~ ' is no text', 'Select it as text, by hex() or to_json() say') -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if settings.evaluation == 'incremental' -%}
        {%- do tidemark.check_row_wise(sql, model) -%}
    {%- endif -%}
    {{ return(columns) }}
{%- endmacro %}

{#- The columns of a table, view or `query ...`, as [{name, type}]. Behind a table's Spark may tell of its partitions. -#}
{% macro _described(what) -%}
    {%- set columns = [] -%}
    {%- for row in run_query('describe ' ~ what) -%}
        {%- if row['col_name'] in ['', '# Partition Information', '# Partitioning'] -%}{{ return(columns) }}{%- endif -%}
        {%- do columns.append({'name': row['col_name'], 'type': row['data_type']}) -%}
    {%- endfor -%}
    {{ return(columns) }}
{%- endmacro %}

{#- Names that `evaluate` gives to columns of its own, and Iceberg to what it knows of each row. -#}
{% macro _taken_columns() -%}
    {{ return([
        '_alike', '_is_put', '_place', '_seq', '_sha256', '_file', '_pos', '_spec_id', '_partition', '_deleted', '_row_id', '_last_updated_sequence_number',
        '_change_type', '_change_ordinal', '_commit_snapshot_id',
    ]) }}
{%- endmacro %}

{#- Whether a table can have a type: no field of it has none, as NULL and the elements of `array()` have, or one that Iceberg doesn't
    know, or a name that Spark would not read again. Each struct has fields, whose names differ by more than upper and lower case. -#}
{% macro _is_storable(type) -%}
    {%- set rest = namespace(type=modules.re.sub('\\(.*?\\)', '', type)) -%}
    {%- if modules.re.search('(?:^|[<,:])(?:(?:void|interval|geometry|geography)\\b(?!:)|time\\()', type) -%}{{ return(false) }}{%- endif -%}
    {#- From the innermost types outwards. -#}
    {%- for _ in range(type.count('<')) -%}
        {%- set inner = modules.re.search('(\\w+)<([^<>]*)>', rest.type) -%}
        {%- if not inner -%}{{ return(false) }}{%- endif -%}
        {%- set names = [] -%}
        {%- for field in inner.group(2).split(',') if inner.group(1) == 'struct' -%}
            {%- set name = field.partition(':')[0] | lower -%}
            {%- if name in names or not modules.re.fullmatch('[A-Za-z_]\\w*:[^:]+', field, modules.re.ASCII) -%}{{ return(false) }}{%- endif -%}
            {%- do names.append(name) -%}
        {%- endfor -%}
        {%- set rest.type = rest.type.replace(inner.group(0), '...', 1) -%}
    {%- endfor -%}
    {{ return(true) }}
{%- endmacro %}

{#- What Iceberg keeps a type of Spark's as: it has no integers of fewer than 32 bits, and no collations. -#}
{% macro _kept_type(type) -%}
    {{ return(modules.re.sub('\\b(smallint|tinyint)\\b(?!:)', 'int', modules.re.sub(' collate \\w+', '', type))) }}
{%- endmacro %}

{#- The columns that every bucket table has beside those of its query. -#}
{% macro own_columns() -%}
    {{ return(['bucket', 'object_type', 'object_id', 'row_key', '_key_number', '_op_id', '_replaces', '_digest_high', '_digest_low', '_checksum', '_checkpoint_id']) }}
{%- endmacro %}
