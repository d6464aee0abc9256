"""The demo's data and definitions, without a server."""

import math

import pytest

from ingest.demo.data import TABLES
from ingest.demo.definitions import DEFINITIONS, EDIT, EDITED, replace_once
from ingest.demo.metrics import percentile
from ingest.demo.weather import OBSERVED


def test_a_tables_columns_are_read_from_its_ddl() -> None:
    planes = next(table for table in TABLES if table.name == "planes")
    assert planes.names[:3] == ["tailnum", "year", "type"]
    assert "primary key (tailnum)" in planes.ddl
    assert planes.ddl.startswith("create table public.planes (")
    assert OBSERVED.ddl.startswith("create table observed.weather (")


def test_a_definitions_columns_have_the_selected_names() -> None:
    columns = {definition.name: definition.columns for definition in DEFINITIONS}
    assert columns["plane_history"][:3] == ("id", "tailnum", "time_hour")
    assert columns["carrier_flights"][-2:] == ("arr_delay", "punctuality")


def test_the_edit_has_exactly_one_match() -> None:
    assert EDIT[1] in EDITED.edited(*EDIT).on_source
    with pytest.raises(ValueError, match="2 times"):
        replace_once("a > 1 and a > 1", "a > 1", "a > 2")


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile(range(1, 101), 95) == 95
    assert percentile([7.0], 95) == 7.0
    assert math.isnan(percentile([], 50))
