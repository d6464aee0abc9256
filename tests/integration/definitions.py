"""Random definitions, in words that Spark and Postgres both understand, so that the source can say what they give."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from ingest import ops
from tests.conftest import Database
from tests.integration.replica import Replica, Row, in_order

FILTERS = [
    "true",
    "status <> 'archived'",
    "total > 5",
    "customer in (1, 2)",
    "id % 2 = 0",
    "total < 12 and customer > 0",
]
STATUSES = ["{}", "upper({})", "concat('is ', {})"]
TYPES_OF_TOTAL = ["int", "bigint", "decimal(12, 0)"]


@dataclass(frozen=True)
class Query:
    """A definition's query, with {orders} and {customers} for its inputs, and what its `meta` says."""

    text: str
    columns: tuple[str, ...]
    meta: dict[str, Any] = field(hash=False)


def rows_query(draw: random.Random) -> Query:
    """Projections and filters of one input."""
    choices = {
        "customer": ["customer", "coalesce(customer, 0) as customer", "customer % 2 as customer"],
        "status": ["status", "upper(status) as status"],
        "total": ["total", "total * 2 as total", "concat(total, '') as total"],
        "doubled": ["total + total as doubled"],
    }
    names = ["id", *draw.sample(list(choices), draw.randint(1, len(choices)))]
    shown = ["id", *(draw.choice(choices[name]) for name in names[1:])]
    bucket_by = draw.sample(names[1:], draw.randint(0, min(2, len(names) - 1)))
    return Query(
        f"select {{row_key}}{', '.join(shown)} from {{orders}} where {draw.choice(FILTERS)}",
        tuple(names),
        {"bucket_by": bucket_by, "object_id": draw.choice(names), "evaluate": "rows"},
    )


def whole_query(draw: random.Random) -> Query:
    """An aggregate, a window, or a join."""
    where = f"where {draw.choice(FILTERS)}"
    return draw.choice(
        [
            Query(
                f"select customer, count(*) as n, sum(total) as total from {{orders}} {where} group by customer",
                ("customer", "n", "total"),
                {"bucket_by": draw.choice([[], ["n"]]), "object_id": "customer", "key": ["customer"]},
            ),
            Query(
                "select id, customer, row_number() over (partition by customer order by id) as place "
                f"from {{orders}} {where}",
                ("id", "customer", "place"),
                {"bucket_by": draw.choice([["customer"], ["place"]]), "object_id": "id", "key": ["id"]},
            ),
            Query(
                "select o.id, o.total, c.region from {orders} join {customers} on o.customer = c.customer_id",
                ("id", "total", "region"),
                {"bucket_by": draw.choice([[], ["region"]]), "object_id": "id", "key": ["id"]},
            ),
        ]
    )


class Definitions:
    """The definitions of a replica, drawn and drawn again; views of `orders` and `customers` below them."""

    def __init__(self, draw: random.Random, replica: Replica) -> None:
        self._draw, self._replica = draw, replica
        self.present: dict[str, Query] = {}
        self.known: set[str] = set()
        self._customers = replica.view("customers", {"customer_id": "int", "region": "string"})
        self._status, self._total = STATUSES[0], TYPES_OF_TOTAL[0]
        self._write_view()

    def change(self) -> str:
        """Adds, changes or removes a definition, or changes the view below them; says what."""
        what = self._draw.choice(["define", "define", "define", "remove", "view"])
        name = f"d{self._draw.randint(1, 3)}"
        if what == "view":
            self._status, self._total = self._draw.choice(STATUSES), self._draw.choice(TYPES_OF_TOTAL)
            self._write_view()
            return f"view: {self._status}, {self._total}"
        if what == "remove" and len(self.present) > 1 and name in self.present:
            del self.present[name]
            self._replica.remove(f"models/buckets/{self.full(name)}.sql")
            return f"{name} removed"
        self.present[name] = query = self._draw.choice([rows_query, whole_query])(self._draw)
        inputs = "{{{{ {}('{}') }}}}"
        orders = inputs.format("rows" if "evaluate" in query.meta else "ref", self._orders)
        customers = inputs.format("ref", self._customers)
        text = query.text.format(row_key="_row_key, ", orders=f"{orders} as o", customers=f"{customers} as c")
        if "evaluate" not in query.meta:
            text = text.replace("_row_key, ", "")
        self._replica.definition(name, text, **query.meta)
        self.known.add(name)
        return f"{name}: {text} {query.meta}"

    def full(self, name: str) -> str:
        """The name of a definition's table."""
        return f"{name}_{self._replica.source.name}"

    def expected(self, name: str, database: Database) -> list[Row]:
        """Sorted (bucket, object_id, *columns), as SQL on the source says."""
        query = self.present[name]
        status = self._status.format("status")
        orders = f"(select id, customer, {status} as status, total from orders) as o"
        found = []
        for row in database.execute(query.text.format(row_key="", orders=orders, customers="customers as c")):
            values = dict(zip(query.columns, row, strict=True))
            texts = [None if values[c] is None else str(values[c]) for c in query.meta["bucket_by"]]
            oid = values[query.meta["object_id"]]
            bucket = ops.bucket_name(self.full(name), json.dumps(texts))
            found.append((bucket, None if oid is None else str(oid), *row))
        return in_order(found)

    def found(self, name: str) -> list[Row]:
        """The same of the lake."""
        return self._replica.bucket(self.full(name), ", ".join(["object_id", *self.present[name].columns]))

    def _write_view(self) -> None:
        source = self._replica.source.name
        self._orders = self._replica.view(
            "orders", {"id": "int", "customer": "int", "status": "string", "total": self._total}
        )
        file = self._replica.folder / f"models/staging/{self._orders}.sql"
        status = "cast(columns['status'] as string)"
        assert status in file.read_text(), source
        self._replica.write(
            f"models/staging/{self._orders}.sql", file.read_text().replace(status, self._status.format(status))
        )
