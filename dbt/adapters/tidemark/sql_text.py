"""SQL as sqlglot's tokens of Spark: without comments and white space."""

from functools import lru_cache
from itertools import takewhile

_QUOTES = "'\"`"


@lru_cache(maxsize=1024)
def tokens(sql: str) -> tuple[str, ...]:
    """The tokens as they are written; empty if sqlglot can't divide the text."""
    import sqlglot
    from sqlglot.errors import TokenError

    found: list[str] = []
    end = -1
    try:
        for token in sqlglot.tokenize(sql, read="spark"):
            text = sql[token.start : token.end + 1]
            if token.start == end and found[-1][-1] == text[0] in _QUOTES:  # a quote in a string, to Spark
                found[-1] += text
            else:
                found.append(text)
            end = token.end + 1
    except TokenError:
        return ()
    return tuple(found)


def names_model(sql: str, name: str, schema: str) -> bool:
    """Whether a query reads a definition, by `ref('name')` or `schema.name`; in a comment it does not."""
    found = [token.strip("`'\"") for token in tokens(sql)]
    for place, token in enumerate(found, 1):
        rest = found[place:]
        if token.lower() == schema.lower() and rest[:2] == [".", name]:
            return True
        if token.lower() == "ref" and rest[:1] == ["("] and name in takewhile(lambda argument: argument != ")", rest):
            return True
    return False


def normalized_sql(sql: str) -> str:
    """SQL by which definitions are compared: a change of comments, white space or the last semicolons is no change.

    A text that sqlglot can't divide counts as it is: then such a change evaluates the definition, and writes nothing.
    """
    found = list(tokens(sql))
    while found and found[-1] == ";":
        found.pop()
    return "\n".join(found) or sql
