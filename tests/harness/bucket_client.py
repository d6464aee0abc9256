"""What an app keeps of one bucket, op by op, as docs/reading-buckets.md says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.pipeline import Row


@dataclass
class BucketClient:
    """Its rows' data, the op that it is at, and the checksum of what it has read."""

    rows: dict[Row, str] = field(default_factory=dict)
    after: int = 0
    checksum: int = 0

    def apply(self, op: Mapping[str, Any]) -> None:
        assert op["op_id"] > self.after
        key = (op.get("object_type"), op.get("object_id"), op.get("row_key"))
        if op["op"] == "CLEAR":
            self.rows, self.checksum = {}, 0
        elif op["op"] == "PUT":
            self.rows[key] = op["data"]
        elif op["op"] == "REMOVE":
            self.rows.pop(key, None)
        self.after, self.checksum = op["op_id"], (self.checksum + op["checksum"]) % (1 << 32)
