{#- The statement that creates a ledger's empty table, with the columns of a select. -#}
{% macro create_ledger_table(relation, select_sql) -%}
    create table {{ relation }}
    {{ tidemark.iceberg_table(config.get('staged', true), partition_cols(label='partitioned by'), config.get('tblproperties', {})) }}
    as select * from ({{ select_sql }}) where false
{%- endmacro %}
