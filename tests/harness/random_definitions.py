"""Random definitions, in words that Spark and Postgres both understand, so that the source can say what they give."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from ingest.commands import op_log
from tests.conftest import Database
from tests.harness.pipeline import Row, SourcePipeline, in_order

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
        {"bucket_by": bucket_by, "object_id": draw.choice(names), "evaluation": "incremental"},
    )


def whole_query(draw: random.Random) -> Query:
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
    """Definitions and lookups of a pipeline, drawn and drawn again; views of `orders` and `customers` below them."""

    def __init__(self, draw: random.Random, pipeline: SourcePipeline) -> None:
        self._draw, self._pipeline = draw, pipeline
        self._present: dict[str, Query] = {}
        # Of a definition: the column by which its lookup says who sees a bucket.
        self._lookups: dict[str, str] = {}
        self.known: set[str] = set()
        self._customers = pipeline.view("customers", {"customer_id": "int", "region": "string"})
        self._status, self._total = STATUSES[0], TYPES_OF_TOTAL[0]
        self._write_view()

    @property
    def present(self) -> list[str]:
        """Names of the definitions, and of the lookups."""
        return [*self._present, *map(_lookup, self._lookups)]

    def change(self) -> str:
        """Adds, changes or removes a definition or a lookup, or changes the view below them; says what."""
        what = self._draw.choice(["define", "define", "define", "remove", "view", "lookup"])
        if what == "view":
            self._status, self._total = self._draw.choice(STATUSES), self._draw.choice(TYPES_OF_TOTAL)
            self._write_view()
            return f"view: {self._status}, {self._total}"
        if what == "lookup" and self._present:
            return self._look_up(self._draw.choice(list(self._present)))
        if what == "remove" and len(self._present) > 1:
            name = self._draw.choice(list(self._present))
            del self._present[name]
            self._pipeline.remove(f"models/buckets/{self.full(name)}.sql")
            if self._lookups.pop(name, None):
                self._pipeline.remove(f"models/buckets/{self.full(_lookup(name))}.sql")
            return f"{name} removed"
        name = f"d{self._draw.randint(1, 3)}"
        self._present[name] = query = self._draw.choice([rows_query, whole_query])(self._draw)
        text = self._text(query, "rows" if "evaluation" in query.meta else "ref")
        self._pipeline.definition(name, text, **query.meta)
        self.known.add(name)
        said = f"{name}: {text} {query.meta}"
        return f"{said}\n{self._look_up(name)}" if name in self._lookups else said

    def full(self, name: str) -> str:
        """The name of a definition's table."""
        return f"{name}_{self._pipeline.source.name}"

    def expected(self, name: str, database: Database) -> list[Row]:
        """Sorted (bucket, object_id, *columns), as SQL on the source says."""
        looked_up = next((each for each in self._lookups if _lookup(each) == name), None)
        query = self._present[looked_up or name]
        status = self._status.format("status")
        orders = f"(select id, customer, {status} as status, total from orders) as o"
        found = []
        for row in database.execute(query.text.format(row_key="", orders=orders, customers="customers as c")):
            values = dict(zip(query.columns, row, strict=True))
            bucket = self._bucket(looked_up or name, [values[c] for c in query.meta["bucket_by"]])
            if looked_up:
                who = values[self._lookups[looked_up]]
                found.append((self._bucket(name, [who]), bucket, who, bucket))
            else:
                oid = values[query.meta["object_id"]]
                found.append((bucket, None if oid is None else str(oid), *row))
        return in_order(set(found) if looked_up else found)

    def found(self, name: str) -> list[Row]:
        """The same of the lake."""
        columns = self._present[name].columns if name in self._present else ("who", "bucket_name")
        return self._pipeline.bucket(self.full(name), ", ".join(["object_id", *columns]))

    def _look_up(self, name: str) -> str:
        query = self._present[name]
        self._lookups[name] = who = self._draw.choice(query.columns)
        selected = ", ".join([f"{who} as who", *query.meta["bucket_by"]])
        meta = {"parameters": ["who"], "bucket": self.full(name)}
        self._pipeline.write(
            f"models/buckets/{self.full(_lookup(name))}.sql",
            f"{{{{ config(materialized='bucket_lookup', meta={meta!r}) }}}}\n"
            f"-- depends_on: {{{{ ref('{self.full(name)}') }}}}\n"
            f"select {selected} from ({self._text(query, 'ref')})\n",
        )
        self.known.add(_lookup(name))
        return f"{_lookup(name)}: {selected}"

    def _text(self, query: Query, orders: str) -> str:
        """The query over the views, with orders by `ref` or `rows`."""
        return query.text.format(
            row_key="_row_key, " if orders == "rows" else "",
            orders=f"{{{{ {orders}('{self._orders}') }}}} as o",
            customers=f"{{{{ ref('{self._customers}') }}}} as c",
        )

    def _bucket(self, name: str, values: list[Any]) -> str:
        return op_log.make_bucket_name(self.full(name), json.dumps([None if v is None else str(v) for v in values]))

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
