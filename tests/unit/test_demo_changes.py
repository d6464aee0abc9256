"""The transactions of the demo, drawn from a random generator."""

from random import Random

import pytest

from ingest.demo.changes import KINDS, make_transaction


def test_the_same_seed_makes_the_same_transactions() -> None:
    first, second = (Random(7), Random(7))
    assert [make_transaction(first, 100) for _ in range(50)] == [make_transaction(second, 100) for _ in range(50)]


def test_all_kinds_are_as_frequent_as_their_weights() -> None:
    random = Random(1)
    names = [make_transaction(random, 1000).name for _ in range(20_000)]
    assert sum(weight for weight, _ in KINDS.values()) == 1000
    for name, (weight, _) in KINDS.items():
        assert names.count(name) == pytest.approx(20 * weight, rel=0.4, abs=20)


@pytest.mark.parametrize("name", KINDS)
def test_transactions_change_existing_flights(name: str) -> None:
    for step in KINDS[name][1](Random(3), list(range(5, 17))):
        parameters = step.parameters
        ids = {parameters[key] for key in ("id", "a", "b") if key in parameters} | {*parameters.get("ids", ())}
        assert ids <= set(range(5, 17))


def test_only_a_rolled_back_transaction_does_not_commit() -> None:
    random = Random(2)
    commits_by_name = {t.name: t.commits for t in (make_transaction(random, 100) for _ in range(5000))}
    assert [name for name, commits in commits_by_name.items() if not commits] == ["rolled back"]


def test_one_transaction_repeats_a_row_and_another_spans_tables() -> None:
    day = KINDS["day of a flight"][1](Random(4), [8, 9])
    assert [step.parameters["id"] for step in day] == [8, 8, 8]
    renamed = " ".join(step.statement for step in KINDS["new registration"][1](Random(4), [8, 9]))
    assert "update planes" in renamed
    assert "update flights" in renamed
