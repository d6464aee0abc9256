"""Compacts raw events with large rows in a process with a small heap: python -m tests.harness.large_events.

Prints as JSON: the number of rows, and the sum of the lengths of their text, before and after.
"""

import json
import sys
from datetime import datetime, timezone
from hashlib import sha256

import pyarrow as pa

from ingest.common import records
from ingest.lake import Lake
from ingest.lake.raw_schema import EVENTS
from ingest.lake.retention import compact_raw
from ingest.lake.spark_session import open_session

# More rows than Parquet writes by default before it checks the size of a row group, 100, and larger than the heap.
FILES, ROWS, TEXT_BYTES = 60, 2, 12 << 20


def main() -> None:
    """Commits the events, and compacts them."""
    lake = Lake(open_session())
    for file in range(FILES):
        events = [make_event(file * ROWS + row) for row in range(ROWS)]
        lake.append(EVENTS, pa.Table.from_pylist(events, schema=records.EVENTS))
    before = measure(lake)
    lines = list(compact_raw(lake.spark, FILES))
    sys.stdout.write(f"\n{json.dumps({'before': before, 'lines': lines, 'after': measure(lake)})}\n")


def make_event(number: int) -> dict[str, object]:
    """An insert with a text that compresses well."""
    text = sha256(str(number).encode()).hexdigest() * (TEXT_BYTES // 64)
    now = datetime.now(timezone.utc)
    return {
        **dict.fromkeys(records.EVENTS.names),
        "source": "shop",
        "writer": 1,
        "commit_lsn": number,
        "commit_index": 0,
        "commit_ts": now,
        "op": records.INSERT,
        "table_id": "t",
        "row_key": f'["{number}"]',
        "columns": [("text", text)],
        "ingested_at": now,
    }


def measure(lake: Lake) -> list[int]:
    """The number of events, and the sum of the lengths of their text."""
    (row,) = lake.spark.sql(f"SELECT count(*), sum(length(columns['text'])) FROM {EVENTS}").collect()
    return list(row)


if __name__ == "__main__":
    main()
