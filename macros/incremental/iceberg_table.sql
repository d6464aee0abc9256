{#- The properties of Tidemark's tables. Writes are staged by default (`write.wap.enabled`: a run's writes go to its
    branch). Deletes are merge-on-read, so that the cost depends on the changes and not on the table. One task reads 64
    small files (by default 4). The size of a row group is checked from its first row on (by default from the 100th).
    Paths do not contain the partition's values: a table's name can be longer than a folder's. -#}
{% macro iceberg_table(staged=true, partitioning='', properties={}) -%}
    using iceberg
    {{ partitioning }}
    tblproperties (
        'format-version' = '3',
        'write.wap.enabled' = '{{ staged | lower }}',
        'write.merge.mode' = 'merge-on-read',
        'write.delete.mode' = 'merge-on-read',
        'write.update.mode' = 'merge-on-read',
        'write.distribution-mode' = 'none',
        'write.metadata.delete-after-commit.enabled' = 'true',
        'write.metadata.previous-versions-max' = '20',
        'write.object-storage.enabled' = '{{ 'true' if partitioning | trim else 'false' }}',
        'write.object-storage.partitioned-paths' = 'false',
        'commit.manifest.min-count-to-merge' = '10',
        'write.parquet.row-group-check-min-record-count' = '1',
        {%- for name, value in properties.items() %}
        '{{ name }}' = '{{ value }}',
        {%- endfor %}
        'read.split.open-file-cost' = '262144'
    )
{%- endmacro %}
