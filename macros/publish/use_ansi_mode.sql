{#-
  Sets Spark's ANSI mode for the run, on-run-start: a cast that cannot read its value, an overflow or a division by
  zero fails the definition, which keeps its published state. dbt-spark switches the mode off, whatever the profile
  says. Without it each of these silently returns NULL, and rows would leave their buckets. Where NULL is intended,
  use `try_cast`.
-#}
{% macro use_ansi_mode() -%}
    {%- do adapter.config.credentials.server_side_parameters.update({'spark.sql.ansi.enabled': 'true'}) -%}
{%- endmacro %}
