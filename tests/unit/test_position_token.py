"""Vector tokens: text form, partial order, maximum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.positions.position_token import Token

POSITIONS = st.integers(0, 12)
TOKENS = st.builds(Token.from_positions, POSITIONS, st.dictionaries(st.integers(0, 4), POSITIONS))
WRITERS = range(6)  # one more than tokens contain: this writer is at the minimum


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("s0", Token(0)),
        ("s123", Token(123)),
        ("m5~1.6", Token(5, ((1, 6),))),
        ("m123~2.130~5.127", Token(123, ((2, 130), (5, 127)))),
        ("s18446744073709551615", Token((1 << 64) - 1)),
    ],
)
def test_a_token_is_a_text_and_back(text: str, token: Token) -> None:
    assert Token.parse(text) == token
    assert str(token) == text


def test_the_order_of_entries_does_not_matter() -> None:
    assert Token.parse("m5~2.7~1.6") == Token.parse("m5~1.6~2.7")


@pytest.mark.parametrize("text", ["m5~1.5", "m5~1.4", "m5~2.6~1.5"])
def test_an_entry_not_above_the_minimum_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"not a token: '{text}': writer 1 at . is not above the minimum 5"):
        Token.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must begin with s or m"),
        ("5", "must begin with s or m"),
        ("x5", "must begin with s or m"),
        ("s", "'' is not a number"),
        ("s-5", "'-5' is not a number"),
        ("s5 ", "'5 ' is not a number"),
        ("s\u0665", "'\u0665' is not a number"),  # a digit of another script
        ("s" + "9" * 21, "is not a number"),
        ("s5~1.6", "a token that begins with s lists no writers"),
        ("m5", "must list the writers that are ahead"),
        ("m5~", "'' is not WRITER.POSITION"),
        ("m5~16", "'16' is not WRITER.POSITION"),
        ("m5~1.", "'' is not a number"),
        ("m5~.6", "'' is not a number"),
        ("m5~1.6.7", "'6.7' is not a number"),
        ("m5~1.6~~2.7", "'' is not WRITER.POSITION"),
        ("m5~1.6~1.7", "writer 1 is listed twice"),
    ],
)
def test_an_invalid_token_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^not a token: .*{why}"):
        Token.parse(text)


def test_a_token_of_negative_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="positions are not negative: -1"):
        Token(-1)
    with pytest.raises(ValueError, match="writers are not negative: -2"):
        Token(0, ((-2, 1),))


def test_a_writer_that_is_not_listed_is_at_the_minimum() -> None:
    token = Token.parse("m5~1.6")
    assert (token.position(1), token.position(2)) == (6, 5)


def test_a_token_lists_only_writers_ahead_of_the_minimum() -> None:
    assert Token.from_positions(5, {1: 5, 2: 7, 3: 2}) == Token(5, ((2, 7),))


@pytest.mark.parametrize(
    ("lower", "upper"),
    [("s5", "s6"), ("s5", "m5~1.6"), ("m5~1.6", "s6"), ("m5~1.6", "m5~1.6~2.7"), ("m5~1.9", "m6~1.9")],
)
def test_a_token_is_before_one_that_has_no_writer_behind_it(lower: str, upper: str) -> None:
    low, up = Token.parse(lower), Token.parse(upper)
    assert low <= up
    assert low < up
    assert up > low
    assert not up <= low


@pytest.mark.parametrize(("first", "second"), [("m5~1.6", "m5~2.6"), ("m5~1.9", "s6"), ("m5~1.9", "m6~2.7")])
def test_tokens_that_are_each_ahead_in_one_writer_have_no_order(first: str, second: str) -> None:
    assert not Token.parse(first) <= Token.parse(second)
    assert not Token.parse(second) <= Token.parse(first)


@pytest.mark.parametrize(
    ("first", "second", "maximum"),
    [
        ("s5", "s6", "s6"),
        ("m5~1.6", "m5~2.7", "m5~1.6~2.7"),
        ("m5~1.9", "m6~2.7", "m6~1.9~2.7"),
        ("m5~1.6", "s6", "s6"),
        ("m5~1.6~2.9", "m4~1.8", "m5~1.8~2.9"),
    ],
)
def test_the_maximum_is_pointwise(first: str, second: str, maximum: str) -> None:
    assert Token.parse(first).maximum(Token.parse(second)) == Token.parse(maximum)


@given(TOKENS)
def test_every_token_is_parsed_from_its_text(token: Token) -> None:
    assert Token.parse(str(token)) == token
    assert hash(Token.parse(str(token))) == hash(token)


@given(TOKENS, TOKENS, TOKENS)
def test_the_order_is_partial(a: Token, b: Token, c: Token) -> None:
    assert a <= a  # noqa: PLR0124  # reflexive
    assert (a <= b <= a) == (a == b)
    assert not (a <= b <= c) or a <= c
    assert (a < b) == (a <= b and a != b)


@given(TOKENS, TOKENS)
def test_the_order_is_that_of_all_writers(a: Token, b: Token) -> None:
    assert (a <= b) == all(a.position(writer) <= b.position(writer) for writer in WRITERS)


@given(TOKENS, TOKENS, TOKENS)
def test_the_maximum_is_the_least_upper_bound(a: Token, b: Token, c: Token) -> None:
    top = a.maximum(b)
    assert a <= top
    assert b <= top
    assert not (a <= c and b <= c) or top <= c
    assert top == b.maximum(a)
    assert (top == b) == (a <= b)


@given(TOKENS, TOKENS)
def test_the_maximum_is_that_of_each_writer(a: Token, b: Token) -> None:
    top = a.maximum(b)
    assert all(top.position(w) == max(a.position(w), b.position(w)) for w in WRITERS)
