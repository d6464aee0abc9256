"""SQL as sqlglot's tokens of Spark: without comments and white space."""

from functools import lru_cache
from itertools import takewhile

_QUOTES = "'\"`"


@lru_cache(maxsize=1024)
def tokens(sql: str) -> tuple[str, ...]:
    """The tokens as they are written; empty if sqlglot can't divide the text."""
    import sqlglot
    from sqlglot.errors import TokenError

    texts: list[str] = []
    end = -1
    try:
        for token in sqlglot.tokenize(sql, read="spark"):
            text = sql[token.start : token.end + 1]
            if token.start == end and texts[-1][-1] == text[0] in _QUOTES:  # a quote in a string, to Spark
                texts[-1] += text
            else:
                texts.append(text)
            end = token.end + 1
    except TokenError:
        return ()
    return tuple(texts)


def names_model(sql: str, name: str, schema: str) -> bool:
    """Whether a query reads a definition, by `ref('name')` or `schema.name`; a comment is no read."""
    token_texts = [token.strip("`'\"") for token in tokens(sql)]
    for index, token in enumerate(token_texts, 1):
        next_tokens = token_texts[index:]
        if token.lower() == schema.lower() and next_tokens[:2] == [".", name]:
            return True
        if (
            token.lower() == "ref"
            and next_tokens[:1] == ["("]
            and name in takewhile(lambda argument: argument != ")", next_tokens)
        ):
            return True
    return False


def normalized_sql(sql: str) -> str:
    """The form in which the SQL of definitions is compared, without comments, white space and the last semicolons.

    A text that sqlglot can't divide is compared as it is: a change of its comments evaluates the definition, and writes
    nothing.
    """
    token_texts = list(tokens(sql))
    while token_texts and token_texts[-1] == ";":
        token_texts.pop()
    return "\n".join(token_texts) or sql
