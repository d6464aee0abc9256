{#-
  Spark's ANSI mode for the run, on-run-start: a cast that can't read its value, an overflow or a division by zero fails the definition,
  which keeps what it has published. dbt-spark turns the mode off whatever the profile says, and each of them would give NULL without a
  word: rows would leave their buckets. What is NULL on purpose is a `try_cast`.
-#}
{% macro use_ansi_mode() -%}
    {%- do adapter.config.credentials.server_side_parameters.update({'spark.sql.ansi.enabled': 'true'}) -%}
{%- endmacro %}
