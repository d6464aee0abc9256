"""The expected rows of the demo's bucket definitions, as SQL on the source.

Written by hand for Postgres, independently of examples/flights, so that the two can be compared.
"""

from dataclasses import dataclass, replace

import psycopg


@dataclass(frozen=True)
class Definition:
    """A definition: its columns in order, and the query that returns its rows from the source.

    The query also returns the columns that every bucket table has.
    """

    name: str
    columns: tuple[str, ...]
    on_source: str

    @property
    def table(self) -> str:
        """The table with its rows in the lake."""
        return f"buckets.{self.name}"

    @property
    def log(self) -> str:
        """The table with its op log."""
        return f"{self.table}__ops"

    def edited(self, old: str, new: str) -> "Definition":
        """The definition with a part of its query replaced."""
        return replace(self, on_source=replace_once(self.on_source, old, new))


def replace_once(text: str, old: str, new: str) -> str:
    """Replaces the only `old` in `text`. Raises ValueError if there is none, or more than one."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} occurs {text.count(old)} times")
    return text.replace(old, new)


def _make_definition(
    name: str, bucket_by: str, object_type: str, object_id: str, columns: str, source: str
) -> Definition:
    names = tuple(column.split(" as ")[-1] for column in columns.split(", "))
    query = f"""
        select
            '{name}' || json_build_array({bucket_by}::text) as bucket,
            '{object_type}' as object_type,
            {object_id}::text as object_id,
            json_build_array({object_id}::text)::text as row_key,
            {columns}
        from {source}
    """
    return Definition(name, names, query)


AIRPORT_DEPARTURES = _make_definition(
    "airport_departures",
    "origin",
    "departure",
    "id",
    "id, origin, dest, carrier, flight, tailnum, time_hour, sched_dep_time, dep_time, dep_delay",
    "public.flights where dep_time is not null",
)
CARRIER_FLIGHTS = _make_definition(
    "carrier_flights",
    "carrier",
    "flight",
    "id",
    "id, carrier, flight, origin, dest, time_hour, arr_delay, "
    "case when arr_delay is null then 'did not arrive' when arr_delay > 15 then 'late' "
    "else 'on time' end as punctuality",
    "public.flights",
)
PLANE_HISTORY = _make_definition(
    "plane_history",
    "tailnum",
    "leg",
    "id",
    "id, tailnum, time_hour, carrier, flight, origin, dest, air_time, distance",
    "public.flights where tailnum is not null",
)
AIRPORT_WEATHER = _make_definition(
    "airport_weather",
    "origin",
    "weather",
    "origin",
    "origin, name, time_hour, temp, wind_speed, visib, hours, precip_of_the_year",
    """(
        select distinct on (origin)
            origin,
            airports.name,
            time_hour,
            temp,
            wind_speed,
            visib,
            count(*) over (partition by origin) as hours,
            sum(precip::numeric(5, 2)) over (partition by origin) as precip_of_the_year
        from observed.weather left join public.airports on origin = faa
        order by origin, time_hour desc
    ) as weather""",
)

DEFINITIONS = (AIRPORT_DEPARTURES, AIRPORT_WEATHER, CARRIER_FLIGHTS, PLANE_HISTORY)

# The demo's edit of the model and of its query here: it raises the delay from which a flight is late.
EDITED = CARRIER_FLIGHTS
EDIT = ("arr_delay > 15", "arr_delay > 30")


def count_differing_rows(dsn: str, before: Definition, after: Definition) -> int:
    """The number of ops between the rows of two definitions, by SQL on the source.

    A PUT for each new or different row, a REMOVE for each row that no longer exists.
    """
    rows = f"({before.on_source}) as old full join ({after.on_source}) as new using (bucket, row_key)"
    with psycopg.connect(dsn) as connection:
        row = connection.execute(f"select count(*) from {rows} where old is distinct from new".encode()).fetchone()
    assert row is not None
    return int(row[0])
