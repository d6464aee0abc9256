"""Slices of the log: about equal, in its order, and none for a run with few records."""

from dbt.adapters.tidemark.log_slices import slice_starts


def test_few_sampled_records_make_one_slice() -> None:
    assert slice_starts([]) == {}
    assert slice_starts(("shop", place, place) for place in range(9)) == {}


def test_slices_have_equal_shares_of_the_sample_in_any_order() -> None:
    sample = [("shop", place, 0) for place in range(25)] + [("bank", 7, 0)]
    assert slice_starts(sample[::-1]) == {"shop": [(5, 0), (10, 0), (15, 0), (20, 0)]}


def test_a_large_transaction_is_divided_by_its_changes() -> None:
    assert slice_starts(("shop", 5, change) for change in range(10)) == {"shop": [(5, 5)]}


def test_records_of_one_place_are_in_one_slice() -> None:
    assert slice_starts([("shop", 5, 1)] * 50 + [("shop", 9, 1)] * 50) == {"shop": [(5, 1), (9, 1)]}


def test_a_source_has_at_most_64_slices() -> None:
    (starts,) = slice_starts(("shop", place, 0) for place in range(10_000)).values()
    assert len(starts) == 63
    assert starts == sorted(set(starts))
