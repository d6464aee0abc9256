"""The ordinals of events depend on the log alone, not on the catalog's key of a table (design rule P3)."""

import pytest

from tests.unit.test_decoder import FULL, Catalog, begin, commit, decode, events, insert, update


@pytest.mark.parametrize("key", ["id", ""])
def test_an_update_with_its_old_row_takes_two_ordinals_for_any_key(key: str) -> None:
    """Decoded again with another key it may be two events; the ordinals of later events are the same."""
    messages = [begin(100), FULL, update(1, "1", "y", old=["1", "x"]), insert(1, "2", "z"), commit(100)]
    rows = events(decode(*messages, catalog=Catalog(_1=key)))
    assert (rows[-1]["op"], rows[-1]["commit_index"]) == ("insert", 2)
