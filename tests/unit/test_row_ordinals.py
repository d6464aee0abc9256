"""The ordinals of events are a function of the log alone, whatever the catalogue says of a key (design rule P3)."""

import pytest

from tests.unit.test_decoder import FULL, Catalogue, begin, commit, decode, events, insert, update


@pytest.mark.parametrize("key", ["id", ""])
def test_an_update_with_its_old_row_takes_two_ordinals_whatever_the_key(key: str) -> None:
    """Read again under another key it may be two events, and what follows has the ordinal that it had."""
    messages = [begin(100), FULL, update(1, "1", "y", old=["1", "x"]), insert(1, "2", "z"), commit(100)]
    rows = events(decode(*messages, catalogue=Catalogue(_1=key)))
    assert (rows[-1]["op"], rows[-1]["commit_index"]) == ("insert", 2)
