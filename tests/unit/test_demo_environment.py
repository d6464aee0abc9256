"""The demo deletes the lake of a previous demo, and no other lake."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.common.errors import UsageError
from ingest.demo.environment import wipe_lake


def _fill(lake: Path, source: str) -> None:
    folder = lake / "raw" / "stream_positions" / "data" / "l1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"source": [source], "position": [1]}), folder / "1.parquet")


def test_a_demos_lake_is_emptied(tmp_path: Path) -> None:
    wipe_lake(tmp_path / "lake")
    _fill(tmp_path / "lake", "nyc")
    wipe_lake(tmp_path / "lake")
    assert not (tmp_path / "lake" / "raw").exists()


def test_a_lake_not_made_by_the_demo_is_not_deleted(tmp_path: Path) -> None:
    _fill(tmp_path, "nyc")
    with pytest.raises(UsageError, match="not a demo's"):
        wipe_lake(tmp_path)
    assert (tmp_path / "raw").exists()


def test_a_demos_lake_with_another_source_is_not_deleted(tmp_path: Path) -> None:
    wipe_lake(tmp_path)
    _fill(tmp_path, "shop")
    with pytest.raises(UsageError, match="holds shop"):
        wipe_lake(tmp_path)
    assert (tmp_path / "raw").exists()
