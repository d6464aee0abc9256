"""Random changes of a deployment, jobs killed at random: the lake has the deployment's documents.

Each seed has its own workload and kills: `make soak ARGS="--seeds 1-100"`; a single seed: `--seeds 17`.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

from bson import Decimal128, Int64, ObjectId
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError

from ingest.config.job_settings import JobSettings
from tests.harness.mongodb_jobs import Client, MongoJobs
from tests.harness.postgres_jobs import chunk_settings
from tests.harness.random_kills import RandomKills

ROUNDS = 3
NAMES = ("a", "b", "c")
KEYS: tuple[Callable[[int], Any], ...] = (
    lambda n: n,
    float,
    lambda n: Int64(n) if n % 2 else str(n),
    lambda n: ObjectId(f"{n:024x}"),
    lambda n: {"shop": n % 3, "number": n},
)


class Workload:
    """Collections and their changes, drawn from a seed. log: a description of all changes, to analyse failures."""

    def __init__(self, rng: random.Random, client: Client, database: str) -> None:
        self.log: list[str] = []
        self._rng = rng
        self._client = client
        self._shop: Database[dict[str, Any]] = client[database]

    def create(self) -> None:
        """Creates the collections, with or without post-images, each with its own kind of keys."""
        self._keys = {name: self._rng.choice(KEYS) for name in NAMES}
        for name in NAMES:
            images = self._rng.random() < 0.5
            self._shop.create_collection(name, changeStreamPreAndPostImages={"enabled": images})
            count = self._rng.randint(0, 60)
            if count:
                self._shop[name].insert_many([self._document(name, n, 30_000) for n in range(count)])

    def change(self) -> None:
        """Makes one change, or a transaction of several that may be rolled back."""
        if self._rng.random() < 0.6:
            self._one(None)
            return
        try:
            with self._client.start_session() as session, session.start_transaction():
                for _ in range(self._rng.randint(2, 8)):
                    self._one(session)
                if self._rng.random() < 0.2:
                    session.abort_transaction()
                    self.log.append("rolled back")
        except PyMongoError as error:  # a duplicate key ends the transaction
            self.log.append(f"refused: {error}")

    def alter(self) -> None:
        """Drops, recreates, renames, renames back and forth, replaces (`$out`) or empties a collection."""
        name = self._rng.choice(NAMES)
        kind = self._rng.choice(("drop", "rename", "to and fro", "out", "empty"))
        self.log.append(f"{kind} {name}")
        if kind == "drop":
            self._shop[name].drop()
            self._shop[name].insert_one(self._document(name, 1))
        elif kind == "rename":
            self._shop[name].rename(f"{name}_old", dropTarget=True)
            self._shop[name].insert_many([self._document(name, n) for n in range(self._rng.randint(1, 5))])
        elif kind == "to and fro":
            self._shop[name].rename(f"{name}_away")
            if self._rng.random() < 0.5:
                self._shop[f"{name}_away"].insert_one({"away": True})
            self._shop[f"{name}_away"].rename(name)
        elif kind == "out":
            self._shop[name].aggregate([{"$match": {"v": {"$ne": 0}}}, {"$out": f"{name}_out"}])
        else:
            self._shop[name].delete_many({})

    def names(self) -> list[str]:
        """The existing collections."""
        return sorted(self._shop.list_collection_names())

    def _one(self, session: ClientSession | None) -> None:
        name, number = self._rng.choice(NAMES), self._rng.randint(0, 70)
        collection, key = self._shop[name], {"_id": self._keys[name](number)}
        kind = self._rng.choice(("upsert", "set", "unset", "replace", "delete", "insert"))
        self.log.append(f"{kind} {name} {number}")
        if kind == "upsert":
            collection.update_one(key, {"$set": {"v": self._value()}}, upsert=True, session=session)
        elif kind == "set":
            collection.update_many({}, {"$set": {f"f{number % 3}": self._value()}}, session=session)
        elif kind == "unset":
            collection.update_one(key, {"$unset": {"v": ""}}, session=session)
        elif kind == "replace":
            document = self._document(name, number)
            collection.replace_one(key, {**document, "_id": self._retyped(document["_id"])}, session=session)
        elif kind == "delete":
            collection.delete_one(key, session=session)
        elif not collection.find_one(key, {"_id": 1}, session=session):
            collection.insert_one(self._document(name, number), session=session)

    def _document(self, name: str, number: int, size: int = 10) -> dict[str, Any]:
        return {"_id": self._keys[name](number), "v": self._value(), "text": "x" * self._rng.randint(0, size)}

    def _retyped(self, identifier: Any) -> Any:
        """An equal `_id`; a number gets another type."""
        if not isinstance(identifier, int | float):
            return identifier
        return self._rng.choice([int(identifier), Int64(identifier), float(identifier)])

    def _value(self) -> Any:
        number = self._rng.randint(-5, 5)
        return self._rng.choice(
            [number, number / 3, str(number), None, [number], {"n": Int64(number)}, Decimal128(str(number))]
        )


def test_random_changes_and_kills_keep_the_documents_of_the_source(
    mongo: Client, mongo_jobs: MongoJobs, settings: JobSettings, seed: int
) -> None:
    rng = random.Random(seed)
    workload = Workload(rng, mongo, mongo_jobs.source.name)
    workload.create()
    chunks = rng.choice([1 << 20, 64 << 20])
    mongo_jobs.settings = chunk_settings(settings, chunks, workers=2, chunk_lease_seconds=1.0)
    try:
        for number in range(ROUNDS):
            with RandomKills(mongo_jobs, random.Random(seed * ROUNDS + number)):
                for _ in range(rng.randint(5, 30)):
                    workload.change()
                    if rng.random() < 0.1:
                        workload.alter()
            mongo_jobs.settle()
            mongo_jobs.assert_documents_equal(mongo, *(f"{mongo_jobs.source.name}.{name}" for name in workload.names()))
    except BaseException:
        sys.stderr.write("\n".join(line[:300] for line in workload.log))
        raise
