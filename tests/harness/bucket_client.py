"""The state that an app keeps of one bucket, updated op by op as docs/guides/reading-buckets.md describes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.pipeline import Row


@dataclass
class BucketClient:
    """The data of the bucket's rows, the last op id, and the checksum of the applied ops."""

    rows: dict[Row, str] = field(default_factory=dict)
    last_op_id: int = 0
    checksum: int = 0

    def apply(self, op: Mapping[str, Any]) -> None:
        assert op["op_id"] > self.last_op_id
        key = (op.get("object_type"), op.get("object_id"), op.get("row_key"))
        if op["op"] == "CLEAR":
            self.rows, self.checksum = {}, 0
        elif op["op"] == "PUT":
            self.rows[key] = op["data"]
        elif op["op"] == "REMOVE":
            self.rows.pop(key, None)
        self.last_op_id, self.checksum = op["op_id"], (self.checksum + op["checksum"]) % (1 << 32)
