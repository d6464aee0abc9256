{#-
  The columns that a definition selects, as [{name, type}] without `_row_key`. They are checked against its settings.
  The columns of a definition that is published unchanged were checked before: they are returned without types. Names
  must differ by more than upper and lower case.
-#}
{% macro bucket_columns(sql, settings, model, plan) -%}
    {%- if plan.is_published -%}
        {%- set known = [] -%}
        {%- for name in plan.published_columns -%}
            {%- do known.append({'name': name}) -%}
        {%- endfor -%}
        {{ return(known) }}
    {%- endif -%}
    {%- if model.config.materialized == 'bucket_lookup' -%}{%- do adapter.check_lookup_columns(model, tidemark.describe_columns('query ' ~ compiled_code) | map(attribute='name') | list) -%}{%- endif -%}
    {%- set columns = [] -%}
    {%- set types = {} -%}
    {%- for column in tidemark.describe_columns('query ' ~ sql) -%}
        {%- set name = column.name -%}
        {%- if name | lower in types -%}
            {%- do tidemark.raise_definition_error(model, "selects two columns named '" ~ name ~ "'", 'Give one of them another name') -%}
        {%- elif name | lower in adapter.system_columns() + tidemark.reserved_columns() -%}
            {%- do tidemark.raise_definition_error(model, "selects a column named '" ~ name ~ "', which every bucket table has", 'Select it under another name') -%}
        {%- elif not tidemark._is_storable(column.type) -%}
            {%- do tidemark.raise_definition_error(model, "selects '" ~ name ~ "' as " ~ column.type ~ ', which no table can have', 'Cast it. The fields of a struct need names of letters, digits and _, without a leading digit, that differ by more than upper and lower case') -%}
        {%- endif -%}
        {%- do types.update({name | lower: column.type}) -%}
        {%- if name | lower != '_row_key' -%}
            {%- do columns.append({'name': name, 'type': tidemark.storage_type(column.type)}) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for name in settings.bucket_by + [settings.object_id] + (settings.unique_key or ['_row_key']) -%}
        {%- set type = types.get(name | lower) -%}
        {%- if not type -%}
            {%- do tidemark.raise_definition_error(model, "meta names a column '" ~ name ~ "' that the query does not select", 'It selects ' ~ columns | map(attribute='name') | join(', ')) -%}
        {%- elif modules.re.match('binary$|(map|array|struct)<', type) -%}
            {%- do tidemark.raise_definition_error(model, "meta names the column '" ~ name ~ "', whose type " ~ type ~ ' is no text', 'Convert it to text, with hex() or to_json()') -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if settings.evaluation == 'incremental' -%}
        {%- do adapter.check_row_wise(model, sql) -%}
    {%- endif -%}
    {{ return(columns) }}
{%- endmacro %}

{#- The columns of a table, view or `query ...`, as [{name, type}]. After a table's columns Spark may list its
    partitions. -#}
{% macro describe_columns(what) -%}
    {%- set columns = [] -%}
    {%- for row in run_query('describe ' ~ what) -%}
        {%- if row['col_name'] in ['', '# Partition Information', '# Partitioning'] -%}{{ return(columns) }}{%- endif -%}
        {%- do columns.append({'name': row['col_name'], 'type': row['data_type']}) -%}
    {%- endfor -%}
    {{ return(columns) }}
{%- endmacro %}

{#- Names that `insert_differences` gives to columns of its own, and Iceberg to its metadata columns. -#}
{% macro reserved_columns() -%}
    {{ return([
        '_alike', '_is_put', '_place', '_seq', '_sha256', '_file', '_pos', '_spec_id', '_partition', '_deleted', '_row_id', '_last_updated_sequence_number',
        '_change_type', '_change_ordinal', '_commit_snapshot_id',
    ]) }}
{%- endmacro %}

{#- Whether a table can have a type. No field may have the type void, as NULL and the elements of `array()` do, or one
    that Iceberg does not support, or a name that Spark cannot parse again. Each struct must have fields, and their
    names must differ by more than upper and lower case. -#}
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

{#- The type that Iceberg stores for a Spark type: Iceberg has no integers of fewer than 32 bits, and no collations. -#}
{% macro storage_type(type) -%}
    {{ return(modules.re.sub('\\b(smallint|tinyint)\\b(?!:)', 'int', modules.re.sub(' collate \\w+', '', type))) }}
{%- endmacro %}

{#- Raises an error about a definition: the problem, its file and the fix. `tidemark check` parses this form. -#}
{% macro raise_definition_error(model, what, fix) -%}
    {{ exceptions.raise_compiler_error(what ~ ' (' ~ model.original_file_path ~ '). ' ~ fix ~ '.') }}
{%- endmacro %}
