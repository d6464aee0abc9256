"""Generated staging views over values as Postgres prints them: Spark has the source's values."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jinja2 import Environment
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ingest.cli.main import cli
from ingest.codegen.staging_record import Record
from ingest.codegen.view_sql import WIDE
from ingest.codegen.view_trial import ViewTrial
from ingest.commands.codegen import Codegen
from ingest.common.errors import Failure, UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import PostgresSource
from ingest.lake.sql_literals import literal
from ingest.project.dbt_package import install_package
from ingest.sources.postgres.catalog import catalog_tables
from ingest.sources.postgres.postgres_connection import Connection, connect, copy_out
from ingest.sources.postgres.postgres_types import cast
from ingest.sources.postgres.snapshot import copy_text
from ingest.sources.postgres.table_views import domains, staging_models
from tests.conftest import Database
from tests.harness.commands import write_sources
from tests.harness.project_copy import make_project
from tests.unit.calling import Macros


@dataclass(frozen=True)
class Typed:
    """A Postgres type, its Spark type and sample values. SQL on both sides gives comparable numbers or texts.

    same: converts Spark's value for the comparison with Postgres's.
    """

    type: str
    values: list[str]
    on_source: str
    on_spark: str = "{}"
    same: Callable[[Any], Any] = lambda value: value


_MICROS = "case when isfinite({0}) and {0} between '0001-01-01' and '294247-01-01' then {1} end"
_EPOCH = "(extract(epoch from {0}) * 1000000)::bigint"
_TIMES = [
    *("2024-02-29 23:59:59.999999", "1969-12-31 23:59:59.000001", "0001-01-01", "9999-12-31"),
    *("10000-01-01", "200000-06-05 04:03:02.1", "294276-12-31 23:59:59.999999"),
    *("infinity", "-infinity", "0044-03-15 10:00:00 BC", "4713-01-01 BC", "1582-10-10"),
]

TYPED = [
    Typed("boolean", ["true", "false"], "{}::int", "int({})"),
    Typed("smallint", ["-32768", "32767", "0"], "{}"),
    Typed("integer", ["-2147483648", "2147483647"], "{}"),
    Typed("bigint", ["-9223372036854775808", "9223372036854775807"], "{}"),
    Typed("oid", ["0", "4294967295"], "{}::bigint"),
    Typed(
        "real",
        ["0.1", "-0", "NaN", "Infinity", "-Infinity", "3.4028235e38", "1e-45", "16777216"],
        "encode(float4send({}), 'hex')",
        same=lambda value: struct.pack(">f", value).hex(),
    ),
    Typed(
        "double precision",
        ["0.1", "-0", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308", "5e-324", "1e15"],
        "encode(float8send({}), 'hex')",
        same=lambda value: struct.pack(">d", value).hex(),
    ),
    *(
        Typed(kind, values, "nullif({}, 'NaN')", same=Decimal)
        for kind, values in {
            "numeric(10,2)": ["0", "-0.005", "99999999.99", "-1.5", "NaN"],
            "numeric(38,0)": ["9" * 38, "-" + "9" * 38],
            "numeric(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
            "numeric(5,-2)": ["9999949", "-123", "NaN"],
            "numeric(2,4)": ["0.0099", "-0.0001"],
            "nested": ["123456.78", "-999.99", "NaN"],
        }.items()
    ),
    Typed(
        "date",
        [
            *("1970-01-01", "2024-02-29", "0001-01-01", "1582-10-10", "9999-12-31", "10000-01-01"),
            *("5874897-12-31", "infinity", "-infinity", "0001-12-31 BC", "4713-01-01 BC"),
        ],
        "case when isfinite({0}) and {0} >= '0001-01-01' then {0} - date '1970-01-01' end",
        "unix_date({})",
    ),
    Typed("timestamp", _TIMES, _MICROS.format("{0}", _EPOCH), "unix_micros(timestamp({}))"),
    Typed("timestamp(0)", ["2024-01-01 00:00:00.5"], _EPOCH, "unix_micros(timestamp({}))"),
    Typed(
        "timestamptz",
        [*_TIMES, "2024-03-31 02:30:00+02", "1883-11-18 12:03:57 America/New_York"],
        _MICROS.format("{0}", _EPOCH),
        "unix_micros({})",
    ),
    Typed("bytea", ["", r"\x00ff275c0a", r"\x" + "ab" * 5000], "encode({}, 'hex')", "lower(hex({}))"),
]

# Types that stay text, as the type's output function prints them.
TEXT = {
    "numeric": ["NaN", "Infinity", "-Infinity", "1" + "0" * 500, "-0." + "0" * 300 + "1", "1.10"],
    "numeric(39,1)": ["1" * 38 + ".5"],
    "numeric(2,39)": ["0." + "0" * 37 + "12"],
    "text": ["", "a\\b\t\r\n'\"`{{ x }}", "\\N", "日本 \u2028 😀", " padded "],
    "varchar(9)": ["abc"],
    "char(5)": ["ab", ""],
    "name": ["n"],
    '"char"': ["x", r"\377"],
    "time": ["24:00", "23:59:59.999999", "00:00"],
    "timetz": ["24:00:00-15:59", "10:00+02"],
    "interval": ["-1 year 2 mons -3 days 04:05:06.789", "0", "178000000 years"],
    "uuid": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "json": ['{"a":  1e400, "a": null}', "null"],
    "jsonb": ['{"b": 1, "a": "\\n"}', "null"],
    "jsonpath": ["$.a[*] ? (@ > 1)"],
    "xml": [],  # The embedded server is built without it.
    "money": ["-92233720368547758.08"],
    "inet": ["::ffff:1.2.3.4/96", "10.0.0.1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(3)": ["101"],
    "varbit": ["", "1010"],
    "point": ["(1e300,-0)", "(NaN,Infinity)"],
    "line": ["{1,2,3}"],
    "lseg": ["[(0,0),(1,1)]"],
    "box": ["(1,1),(0,0)"],
    "path": ["((0,0),(1,1))"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "circle": ["<(0,0),5>"],
    "int4range": ["[1,10)", "empty", "(,)"],
    "int8range": ["[1,2]"],
    "numrange": ["(1.5,)"],
    "daterange": ["[2024-01-01,infinity)"],
    "tsrange": ['["2024-01-01 10:00",)'],
    "tstzrange": ['["2024-01-01 10:00+02",)'],
    "int4multirange": ["{[1,2),[5,6)}"],
    "int8multirange": ["{}"],
    "nummultirange": ["{[1.5,2)}"],
    "datemultirange": ["{[2024-01-01,2024-02-01)}"],
    "tsmultirange": ['{["2024-01-01 10:00",)}'],
    "tstzmultirange": ['{["2024-01-01 10:00+02",)}'],
    "tsvector": ["'a':1A 'it''s':2"],
    "tsquery": ["'a' & !'b'"],
    "pg_lsn": ["FFFFFFFF/FFFFFFFF"],
    "pg_snapshot": ["10:20:10,14"],
    "txid_snapshot": ["10:20:10,14"],
    "xid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "cid": ["7"],
    "tid": ["(1,2)"],
    "aclitem": ["postgres=r/postgres"],
    "refcursor": ["c"],
    "regclass": ["pg_class", "typed"],
    "regcollation": ['"C"'],
    "regconfig": ["english"],
    "regdictionary": ["simple"],
    "regnamespace": ["public"],
    "regoper": ["||/"],
    "regoperator": ["-(integer,integer)"],
    "regproc": ["now"],
    "regprocedure": ["lower(text)"],
    "regrole": ["postgres"],
    "regtype": ["mood", "integer"],
    "int2vector": ["1 2"],
    "oidvector": ["1 2"],
    "integer[]": ["{1,NULL,3}", "[0:1]={1,2}", "{}"],
    "text[]": ['{"a,b","c\\"d",NULL,"NULL",""}'],
    "timestamptz[]": ['{"2024-01-01 10:00+02",infinity}'],
    "price[]": ["{1.50}"],
    "mood": ["it's", "ok"],
    "pair": ['(1,"a b")', "(,)"],
}
# Types of the system catalogs, whose input functions reject every value.
WITHOUT_INPUT = {
    *("gtsvector", "pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list"),
    *("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
}


ROW_STATE = (
    "source string, table_name string, row_key string, checkpoint_id long, columns map<string, string>, "
    "deleted boolean, multiplicity int"
)


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    """A session with the settings of the jobs, in a database with other defaults for printing values."""
    for setting, value in {
        "datestyle": "German, DMY",
        "timezone": "Asia/Kathmandu",
        "intervalstyle": "sql_standard",
        "bytea_output": "escape",
        "extra_float_digits": "-3",
    }.items():
        statement = sql.SQL("alter database {} set {} = {}")
        names = sql.Identifier(database.name), sql.Identifier(setting), sql.Literal(value)
        database.execute(statement.format(*names))
    with connect(database.dsn) as connection:
        yield connection


def make_typed_table(connection: Connection) -> None:
    """Creates public.typed: a column per type, each of its values in a row, and a row of NULLs."""
    connection.execute("set search_path = public, pg_catalog")
    connection.execute("""
        create type mood as enum ('it''s', 'ok');
        create type pair as (a int, b text);
        create domain price as numeric(8,2);
        create domain nested as price check (value > -1000)
    """)
    kinds = {case.type: case.values for case in TYPED} | TEXT
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    connection.execute(f"create table typed (n serial primary key, {columns})".encode())
    for number, values in enumerate(kinds.values()):
        for value in values:
            insert = sql.SQL("insert into typed ({}) values ({})")
            column = sql.Identifier(f"c{number}")
            connection.execute(insert.format(column, sql.Literal(value)))
    connection.execute("insert into typed default values")
    connection.execute("set search_path = pg_catalog")


def create_views(spark: SparkSession, connection: Connection, source: PostgresSource) -> list[DataFrame]:
    """Creates each table's generated view over rows as COPY prints them; equal rows are counted."""
    tables = catalog_tables.read_tables(connection, source.selects)
    rows = [row for table in tables for row in _rows(connection, source.name, table)]
    spark.createDataFrame(rows, ROW_STATE).createOrReplaceTempView("row_state")
    return [spark.sql(render_model(view.sql)) for view in staging_models(source, tables, domains(connection), Record())]


def render_model(text: str) -> str:
    """The SQL of a generated model."""
    macros = Macros("casts", "sql_helpers")
    template = Environment(autoescape=False).from_string(text)
    return template.render(tidemark=macros, config=lambda **_: "", ref=lambda *names: names[-1], source=lambda *_: "")


def _rows(connection: Connection, source: str, table: catalog_tables.CatalogTable) -> Iterator[tuple[Any, ...]]:
    names = [column.name for column in table.columns]
    copy = sql.SQL("COPY {} ({}) TO STDOUT").format(
        sql.Identifier(table.schema, table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    counted: dict[str, tuple[dict[str, str], int]] = {}
    for batch in copy_text.decode(copy_out(connection, copy.as_string(connection)), names):
        for pairs in batch.columns.to_pylist():
            key = str(pairs)
            counted[key] = dict(pairs), counted.get(key, ({}, 0))[1] + 1
    for key, (columns, multiplicity) in counted.items():
        yield source, table.table_name, key, 7, columns, False, multiplicity
        yield source, table.table_name, f"{key} of a deleted row", 7, columns, True, 0
        yield "another", table.table_name, key, 7, columns, False, multiplicity


def test_a_wide_view_reads_rows_with_other_keys_than_the_tables(
    spark: SparkSession, connection: Connection, source: PostgresSource
) -> None:
    """Rows are from before columns were added and dropped, or have the table's keys in another order."""
    names = [*(f"c{number}" for number in range(WIDE)), "C1", "now", "x y", "it's \\ `{{ it }}`", "a.b", "Größe"]
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in names)
    connection.execute(sql.SQL("create table public.wide (id int primary key, {})").format(columns))
    (table,) = catalog_tables.read_tables(connection, source.selects)
    values = {"id": "1"} | {name: f"value of {name}" for name in names} | {"c7": None}
    items = list(values.items())
    maps: list[dict[str, str | None]] = [
        values,
        dict(items[:-3]),
        values | {"added": "later"},
        dict([*items[:3], ("dropped", "x"), *items[3:]]),
        dict(reversed(items)),
        dict([*items[:5], *items[6:]]),
        {"id": "6"},
    ]
    rows = [(source.name, "public.wide", str(number), 7, row, False, 1) for number, row in enumerate(maps)]
    spark.createDataFrame(rows, ROW_STATE).createOrReplaceTempView("row_state")
    (view,) = staging_models(source, [table], {}, Record())
    assert "texts_by_position(names)" in view.sql
    actual = spark.sql(render_model(view.sql)).orderBy("_row_key").drop("_row_key", "_checkpoint_id").collect()
    assert [[*row] for row in actual] == [[int(row["id"] or 0), *(row.get(name) for name in names)] for row in maps]


@pytest.mark.both_versions
def test_every_type_has_the_values_of_the_source(
    spark: SparkSession, connection: Connection, source: PostgresSource
) -> None:
    make_typed_table(connection)
    (view,) = create_views(spark, connection, source)
    printed = range(len(TYPED), len(TYPED) + len(TEXT))
    source_columns = [case.on_source.format(f"c{number}") for number, case in enumerate(TYPED)]
    source_columns += [
        f"case when c{number} is distinct from null then format('%s', c{number}) end" for number in printed
    ]
    spark_columns = [f"{case.on_spark.format(f'c{number}')} as v{number}" for number, case in enumerate(TYPED)]
    spark_columns += [f"c{number}" for number in printed]
    on_source = connection.execute(
        f"select {', '.join(source_columns)} from public.typed order by n".encode()
    ).fetchall()
    on_spark = view.selectExpr("n", *spark_columns).orderBy("n").drop("n").collect()
    assert len(on_spark) == len(on_source) > 100
    converters = [case.same for case in TYPED] + [lambda value: value] * len(TEXT)
    for wanted_row, row in zip(on_source, on_spark, strict=True):
        actual = [value if value is None else same(value) for value, same in zip(row, converters, strict=True)]
        assert actual == list(wanted_row)


def test_a_value_outside_of_sparks_range_is_null_and_keeps_its_text(
    spark: SparkSession, connection: Connection, source: PostgresSource
) -> None:
    connection.execute("""
        create table public.odd
            (id int primary key, d date, t timestamp, z timestamptz, n numeric(9,1));
        insert into public.odd values
            (1, 'infinity', '-infinity', 'infinity', 'NaN'),
            (2, '0044-03-15 BC', '0044-03-15 BC', '0044-03-15 BC', 1.5)
    """)
    (view,) = create_views(spark, connection, source)
    texts = [f"_columns['{name}'] as {name}_text" for name in "dtzn"]
    rows = view.orderBy("id").selectExpr("d", "t", "z", "n", *texts).collect()
    assert [tuple(row) for row in rows] == [
        (None, None, None, None, "infinity", "-infinity", "infinity", "NaN"),
        (
            *(None, None, None, Decimal("1.5"), "0044-03-15 BC"),
            *("0044-03-15 00:00:00 BC", "0044-03-15 00:00:00+00 BC", "1.5"),
        ),
    ]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (
            "date",
            [
                *(
                    "31/12/2024",
                    "2024-12-31 10:00:00",
                    "2024-12",
                    "2020",
                    "20200101",
                    "99999",
                    "2024-02-30",
                    "today",
                    "now",
                    "",
                ),
                *(
                    "2024-12-31 ",
                    "2024-12-31\n",
                    " 2024-12-31",
                    "2024-12-31 BCE",
                    "ABC",
                    "to infinity",
                    "Infinity",
                    "-2024-12-31",
                ),
            ],
        ),
        (
            "timestamp without time zone",
            [
                *(
                    "31/12/2024",
                    "22:01:00",
                    "2024-12-31",
                    "2020",
                    "123456",
                    "epoch",
                    "now",
                    "",
                    "2024-12-31 10:00:00+00",
                ),
                *("2024-12-31 10:00", "2024-12-31T10:00:00", "2024-12-31 25:00:00", "ABC", "290000-99-99", "294250-99"),
            ],
        ),
        (
            "timestamp with time zone",
            [
                *(
                    "Dec 31 10:00",
                    "22:01:00",
                    "12:30:00+02",
                    "2024-12-31",
                    "2024-12-31 10:00:00",
                    "2020",
                    "123456",
                    "",
                    "ABC",
                ),
                *("2024-12-31 10:00:00+02", "2024-12-31 10:00:00+00 UTC", "2024-12-31 10:00:00 BC", "290000-99-99"),
            ],
        ),
        ("bytea", ["00ff", r"\xzz", r"\x4", r"\x41?\x42", r"\x41\x42", r"?\x41", r"\\x41", r"\X41", r"\x 41", ""]),
        (
            "real",
            ["1e+300", "1e+39", "-3.5e+38", "1d", "1f", "0x1p3", "infinity", "nan", "+1", "1e5", " 1", "1.", ""],
        ),
        ("double precision", ["1e+309", "-1" + "0" * 400, "1d", "Inf", "t", "1,5"]),
        ("numeric(9,1)", ["nine"]),
        ("integer", ["3000000000", "1.5"]),
    ],
)
def test_a_value_of_another_type_raises_an_error(spark: SparkSession, kind: str, texts: list[str]) -> None:
    read = render_model(cast("c", kind, {}).sql)
    for text in texts:
        with pytest.raises(PySparkException, match="INVALID|MALFORMED|no such value"):
            spark.sql(f"select {read} as c from (select map('c', {literal(text)}) as columns)").collect()


def test_the_error_names_the_value_its_column_and_the_fix(spark: SparkSession) -> None:
    read = render_model(cast("it's", "timestamp with time zone", {}).sql)
    message = r"columns\['it\\'s'\] as timestamp: Postgres prints no such value as 22:01:00; edit the view"
    with pytest.raises(PySparkException, match=message):
        spark.sql(f"select {read} as c from (select map('it\\'s', '22:01:00') as columns)").collect()


def test_the_cases_cover_all_built_in_types(connection: Connection) -> None:
    make_typed_table(connection)
    missing = connection.execute("""
        select typname from pg_type
        where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm')
            and typcategory <> 'A'
            and oid not in (
                select atttypid from pg_attribute where attrelid = 'public.typed'::regclass
            )
    """).fetchall()
    assert {name for (name,) in missing} == WITHOUT_INPUT


ODD_NAMES = [
    *("ID", "id", "_row_key", "_Columns", "a b", "select", "it's", "back`tick", "a\\b", "{{ x }}"),
    *("{% y", "{# z", 'quo"te', "é", "new\nline", "1e5", "columns", "deleted", "copy", "x.y"),
]


def test_unusual_names_and_equal_rows_are_kept(
    spark: SparkSession, connection: Connection, source: PostgresSource
) -> None:
    table = sql.Identifier("public", "od'd \\ {{ name }}")
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(n)) for n in ODD_NAMES)
    values = [str(number) for number in range(len(ODD_NAMES))]
    connection.execute(sql.SQL("create table {} ({})").format(table, columns))
    connection.execute(sql.SQL("alter table {} replica identity full").format(table))
    insert = sql.SQL("insert into {} select {} from generate_series(1, 3)")
    literals = sql.SQL(", ").join(map(sql.Literal, values))
    connection.execute(insert.format(table, literals))
    connection.execute(sql.SQL("insert into {} default values").format(table))
    (view,) = create_views(spark, connection, source)
    rows = view.collect()
    assert len(rows) == 4
    (nulls,) = [row for row in rows if row["id"] is None]
    assert not nulls["_row_key"].endswith("#1")
    full = [row for row in rows if row["id"] is not None]
    assert [list(row[2:]) for row in full] == [values] * 3
    first = min((row["_row_key"] for row in full), key=len)
    assert {row["_row_key"] for row in full} == {first, f"{first}#2", f"{first}#3"}
    assert view.columns[2:6] == ["ID_2", "id", "_row_key_2", "_Columns_2"]
    assert view.columns[6:] == ODD_NAMES[4:]


def test_codegen_lists_written_and_unchanged_files(
    spark: SparkSession, database: Database, source: PostgresSource, settings: JobSettings, tmp_path: Path
) -> None:
    database.execute("create table a (id int primary key); create table no_key (id int)")
    sql_file, yml = (tmp_path / f"stg_{source.name}__a.{end}" for end in ("sql", "yml"))
    tried = ViewTrial(lambda: spark).try_view
    wrote, wrote_yml, left_out, total = Codegen(tried, tmp_path).write(source, settings).lines
    assert (wrote, wrote_yml) == (f"wrote {sql_file}", f"wrote {yml}")
    assert left_out.startswith("skipped public.no_key: it has no replica identity")
    assert total == f"{source.name}: 1 tables, 0 files unchanged"

    sql_file.write_text(sql_file.read_text().replace("as id", "as a_id"))
    unchanged, _, total = Codegen(tried, tmp_path).write(source, settings).lines
    assert unchanged == f"kept {sql_file}, which differs; `tidemark codegen --force public.a` overwrites it"
    assert total == f"{source.name}: 1 tables, 1 files unchanged"

    database.execute("create table b (id int primary key)")
    only_a = Codegen(tried, tmp_path, tables=["public.a"], force=True)
    assert only_a.write(source, settings).lines == [
        f"wrote {sql_file}",
        f"{source.name}: 1 tables, 1 files unchanged",
    ]
    only_a.check_tables_exist()
    without_tables = Codegen(tried, tmp_path, tables=["public.*", "public.c"])
    assert without_tables.write(source, settings).lines[0] == f"wrote {tmp_path}/stg_{source.name}__b.sql"
    with pytest.raises(UsageError, match=r"no source has such a table: public\.c"):
        without_tables.check_tables_exist()
    Path(sql_file).write_text("-- edited")
    excluding = Codegen(tried, tmp_path, tables=["public.*", "!public.a"], force=True)
    excluding.write(source, settings)
    excluding.check_tables_exist()
    assert Path(sql_file).read_text() == "-- edited"


def test_spark_accepts_every_view_that_is_written(
    spark: SparkSession, database: Database, source: PostgresSource, settings: JobSettings, tmp_path: Path
) -> None:
    kinds = ("text", "date", "numeric(10,2)", "timestamptz", "double precision", "bigint", "bytea", "timestamp")
    wide = ", ".join(f"c{number} {kinds[number % len(kinds)]}" for number in range(1598))
    odd = [
        *ODD_NAMES,
        "😀",
        "a.b.c",
        "x`y`",
        "from",
        "true",
        "select * from x; --",
        "/* c */",
        "\t",
        "İ",
        "${env:HOME}",
    ]
    names = sql.SQL(", ").join(sql.SQL("{} date").format(sql.Identifier(name)) for name in odd)
    for name, columns in (("wide", sql.SQL(wide)), ("odd '\\ {{ x }} ` 😀", names)):
        table = sql.Identifier(name)
        database.execute(sql.SQL("create table {} (primary_key int primary key, {})").format(table, columns))
    done = Codegen(ViewTrial(lambda: spark).try_view, tmp_path).write(source, settings)
    assert not done.refused
    assert len(list(tmp_path.glob("*.sql"))) == 2


@pytest.mark.parametrize(
    "text", ["select nothing from {{ ref('row_state') }}", "select 1 as a, 2 as A", "{{ no.such }}"]
)
def test_a_view_that_spark_rejects_is_reported_in_one_line(spark: SparkSession, text: str) -> None:
    problem = ViewTrial(lambda: spark).try_view(text)
    assert problem
    assert len(problem) <= 300
    assert "\n" not in problem


def test_codegen_skips_views_that_spark_rejects_and_shows_differences(
    spark: SparkSession,
    database: Database,
    source: PostgresSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.execute("create table a (id int primary key, due date); create table b (id int primary key)")
    make_project(tmp_path)
    macros = install_package(tmp_path) / "macros/casts/pg.sql"
    write_sources(tmp_path, source)
    read_date = "{{ tidemark._parse_printed(text, 'date', day, day ~ ' BC') }}"
    assert read_date in macros.read_text()
    macros.write_text(macros.read_text().replace(read_date, "no_such({{ text }})"))
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    a, b = (f"models/staging/stg_{source.name}__{table}.sql" for table in "ab")
    refused = run.invoke(cli, ["codegen"])
    assert refused.exit_code == 1
    assert "skipped public.a: Spark rejects its view ([UNRESOLVED_ROUTINE]" in refused.output
    assert f"wrote {b}" in refused.output
    assert not Path(a).exists()

    Path(b).write_text(Path(b).read_text().replace("as id", "as b_id"))
    shown = run.invoke(cli, ["codegen", "--diff", "public.b"])
    assert (shown.exit_code, shown.output.splitlines()[:2]) == (0, [f"--- {b}", f"+++ {b}"])
    assert "as b_id" in Path(b).read_text()
    assert run.invoke(cli, ["codegen", "--force", "public.b"]).output.startswith(f"wrote {b}")
    assert run.invoke(cli, ["codegen", "--diff", "public.b"]).output == ""
    for arguments, message in {
        ("--force",): "no tables to overwrite",
        ("x.y",): "no source has such a table",
    }.items():
        error = run.invoke(cli, ["codegen", *arguments]).exception
        assert isinstance(error, UsageError)
        assert message in str(error)


@pytest.mark.usefixtures("spark")
def test_codegen_writes_the_views_of_other_sources_if_one_is_unreachable(
    database: Database, source: PostgresSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table a (id int primary key)")
    make_project(tmp_path)
    file = write_sources(tmp_path, source)
    unreachable = {"postgres": {"dsn": f"host={tmp_path} dbname=x", "tables": ["public.*"]}}
    sources = {"away": unreachable, **yaml.safe_load(file.read_text())["sources"]}
    file.write_text(yaml.safe_dump({"sources": sources}, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["codegen"])
    assert f"wrote models/staging/stg_{source.name}__a.sql" in done.output
    assert isinstance(done.exception, Failure)
    assert "can't connect to Postgres" in str(done.exception)


# The last millisecond of a BC year, the first of year 1, and similar limits.
MOMENTS = {
    "0001-12-31 23:59:59.999+00 BC": -62135596800001,
    "0001-01-01 00:00:00+00": -62135596800000,
    "9999-12-31 23:59:59.999+00": 253402300799999,
    "10000-01-01 00:00:00+00": 253402300800000,
    "294246-12-31 23:59:59.999+00": 9223371244799999,
    "294247-01-01 00:00:00+00": 9223371244800000,
}


def test_timestamps_of_postgres_and_mongodb_have_the_same_values(spark: SparkSession) -> None:
    macros = Macros("casts", "sql_helpers")
    shown = [f"unix_millis({macros.pg_timestamp('printed')}) as p", f"unix_millis({macros.bson_date('json')}) as m"]
    rows = [(timestamp, f'{{"$date":{{"$numberLong":"{number}"}}}}') for timestamp, number in MOMENTS.items()]
    actual_rows = spark.createDataFrame(rows, "printed string, json string").selectExpr(*shown).collect()
    expected = [-62135596800000, 253402300799999, 253402300800000, 9223371244799999]
    assert [row.p for row in actual_rows] == [row.m for row in actual_rows]
    assert [row.p for row in actual_rows if row.p is not None] == expected
    assert len(actual_rows) == len(expected) + 2
