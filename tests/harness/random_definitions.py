"""Random definitions in SQL that Spark and Postgres both understand: the source can compute the expected rows."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from ingest.commands import op_log
from tests.conftest import Database
from tests.harness.pipeline import Row, SourcePipeline, sort_rows

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
    """A definition's query, with {orders} and {customers} for its inputs, and its `meta`."""

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
        {"bucket_by": bucket_by, "object_id": draw.choice(names), "evaluation": "incremental"},
    )


def aggregate_query(draw: random.Random) -> Query:
    """An aggregate, a window, or a join."""
    where = f"where {draw.choice(FILTERS)}"
    return draw.choice(
        [
            Query(
                f"select customer, count(*) as n, sum(total) as total from {{orders}} {where} group by customer",
                ("customer", "n", "total"),
                {"bucket_by": draw.choice([[], ["n"]]), "object_id": "customer", "unique_key": ["customer"]},
            ),
            Query(
                "select id, customer, row_number() over (partition by customer order by id) as place "
                f"from {{orders}} {where}",
                ("id", "customer", "place"),
                {"bucket_by": draw.choice([["customer"], ["place"]]), "object_id": "id", "unique_key": ["id"]},
            ),
            Query(
                "select o.id, o.total, c.region from {orders} join {customers} on o.customer = c.customer_id",
                ("id", "total", "region"),
                {"bucket_by": draw.choice([[], ["region"]]), "object_id": "id", "unique_key": ["id"]},
            ),
        ]
    )


class Definitions:
    """The randomly changed definitions and lookups of a pipeline, over views of `orders` and `customers`."""

    def __init__(self, draw: random.Random, pipeline: SourcePipeline) -> None:
        self._draw, self._pipeline = draw, pipeline
        self._queries: dict[str, Query] = {}
        # By definition: the column by which its lookup grants buckets.
        self._lookups: dict[str, str] = {}
        self.known: set[str] = set()
        self._customers = pipeline.view("customers", {"customer_id": "int", "region": "string"})
        self._status, self._total = STATUSES[0], TYPES_OF_TOTAL[0]
        self._write_view()

    @property
    def names(self) -> list[str]:
        """The names of the definitions and of the lookups."""
        return [*self._queries, *map(_lookup, self._lookups)]

    def change(self) -> str:
        """Adds, changes or removes a definition or a lookup, or changes the views; returns a description."""
        kind = self._draw.choice(["define", "define", "define", "remove", "view", "lookup"])
        if kind == "view":
            self._status, self._total = self._draw.choice(STATUSES), self._draw.choice(TYPES_OF_TOTAL)
            self._write_view()
            return f"view: {self._status}, {self._total}"
        if kind == "lookup" and self._queries:
            return self._look_up(self._draw.choice(list(self._queries)))
        if kind == "remove" and len(self._queries) > 1:
            name = self._draw.choice(list(self._queries))
            del self._queries[name]
            self._pipeline.remove(f"models/buckets/{self.table_name(name)}.sql")
            if self._lookups.pop(name, None):
                self._pipeline.remove(f"models/buckets/{self.table_name(_lookup(name))}.sql")
            return f"{name} removed"
        name = f"d{self._draw.randint(1, 3)}"
        self._queries[name] = query = self._draw.choice([rows_query, aggregate_query])(self._draw)
        text = self._text(query, "rows" if "evaluation" in query.meta else "ref")
        self._pipeline.definition(name, text, **query.meta)
        self.known.add(name)
        description = f"{name}: {text} {query.meta}"
        return f"{description}\n{self._look_up(name)}" if name in self._lookups else description

    def table_name(self, name: str) -> str:
        """The name of a definition's table."""
        return f"{name}_{self._pipeline.source.name}"

    def expected(self, name: str, database: Database) -> list[Row]:
        """Sorted (bucket, object_id, *columns) by SQL on the source."""
        looked_up = next((definition for definition in self._lookups if _lookup(definition) == name), None)
        query = self._queries[looked_up or name]
        status = self._status.format("status")
        orders = f"(select id, customer, {status} as status, total from orders) as o"
        rows = []
        for row in database.execute(query.text.format(row_key="", orders=orders, customers="customers as c")):
            values = dict(zip(query.columns, row, strict=True))
            bucket = self._bucket(looked_up or name, [values[c] for c in query.meta["bucket_by"]])
            if looked_up:
                grantee = values[self._lookups[looked_up]]
                rows.append((self._bucket(name, [grantee]), bucket, grantee, bucket))
            else:
                oid = values[query.meta["object_id"]]
                rows.append((bucket, None if oid is None else str(oid), *row))
        return sort_rows(set(rows) if looked_up else rows)

    def actual(self, name: str) -> list[Row]:
        """The same from the lake."""
        columns = self._queries[name].columns if name in self._queries else ("who", "bucket_name")
        return self._pipeline.bucket(self.table_name(name), ", ".join(["object_id", *columns]))

    def _look_up(self, name: str) -> str:
        query = self._queries[name]
        self._lookups[name] = grantee = self._draw.choice(query.columns)
        selected = ", ".join([f"{grantee} as who", *query.meta["bucket_by"]])
        meta = {"parameters": ["who"], "bucket": self.table_name(name)}
        self._pipeline.write(
            f"models/buckets/{self.table_name(_lookup(name))}.sql",
            f"{{{{ config(materialized='bucket_lookup', meta={meta!r}) }}}}\n"
            f"-- depends_on: {{{{ ref('{self.table_name(name)}') }}}}\n"
            f"select {selected} from ({self._text(query, 'ref')})\n",
        )
        self.known.add(_lookup(name))
        return f"{_lookup(name)}: {selected}"

    def _text(self, query: Query, orders: str) -> str:
        """The query over the views; orders by `ref` or `rows`."""
        return query.text.format(
            row_key="_row_key, " if orders == "rows" else "",
            orders=f"{{{{ {orders}('{self._orders}') }}}} as o",
            customers=f"{{{{ ref('{self._customers}') }}}} as c",
        )

    def _bucket(self, name: str, values: list[Any]) -> str:
        return op_log.make_bucket_name(
            self.table_name(name), json.dumps([None if v is None else str(v) for v in values])
        )

    def _write_view(self) -> None:
        source = self._pipeline.source.name
        self._orders = self._pipeline.view(
            "orders", {"id": "int", "customer": "int", "status": "string", "total": self._total}
        )
        file = self._pipeline.folder / f"models/staging/{self._orders}.sql"
        status = "cast(columns['status'] as string)"
        assert status in file.read_text(), source
        self._pipeline.write(
            f"models/staging/{self._orders}.sql", file.read_text().replace(status, self._status.format(status))
        )


def _lookup(name: str) -> str:
    """The name of a definition's lookup."""
    return f"who_{name}"
