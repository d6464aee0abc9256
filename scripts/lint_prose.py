"""Lints the prose of Markdown pages: `python -m scripts.lint_prose FILE...`.

Rules: sentences of at most 30 words, at most two passives in a sentence, none of the words in `BANNED`, table cells
of at most 15 words, and over all pages a mean of at most 16 words a sentence. Code is not linted; inline code counts
as one word.
"""

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

SENTENCE_WORDS, CELL_WORDS, PASSIVES, MEAN_WORDS = 30, 15, 2, 16
BANNED = {
    r"just|simply|easily|obviously|of course|basically|really|actually|very|quite|rather(?! than)": "leave it out",
    r"in order to|so as to": "to",
    r"utili[sz]es?|leverages?": "use",
    r"as well as": "and",
    r"due to the fact that": "because",
    r"e\.g\.|i\.e\.|etc\.": "for example, that is, and others",
    r"someone|whatever": "name the process, the reader or the thing",
    r"hence|thus|thereby|herein|whilst|meanwhile": "so, there, while, in between",
    r"and/or": "name both cases",
    r"please|let's|we": "address the reader as you, name Tidemark",
    r"seamless(?:ly)?|robust|powerful|blazing(?:ly)?|effortless(?:ly)?|state of the art": "say what it does",
}
_BANNED = [
    (re.compile(rf"(?<![\w'-])(?:{words})(?![\w'-])", re.IGNORECASE), replacement)
    for words, replacement in BANNED.items()
]
_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\b(?: (?:not|never|then|also|only|always|still|once))* "
    r"(?:\w+ed|read|written|kept|made|done|sent|lost|given|taken|shown|known|found|seen|begun|held|put|left|built|cut)\b",
    re.IGNORECASE,
)
_GENERATED = "<!-- Written by scripts/generate_docs.py"  # short items, which would lower the mean
_FENCE = re.compile(r"^\s*(`{3,})")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+|^:\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"(*]|dbt\b)|(?<=[.!?]\))\s+(?=[A-Z`])")


def blocks(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line number, text, whether it is a table cell) of each paragraph, list item and cell of a page."""
    number, paragraph, fence, previous_blank = 0, "", "", True
    for line_number, line in enumerate(
        [*re.sub(r"<!--.*?-->", _blank_lines, text, flags=re.DOTALL).splitlines(), ""], 1
    ):
        fence_match = _FENCE.match(line)
        is_code = bool(fence) or (
            previous_blank and line.startswith("    ") and not paragraph and not _ITEM.match(line)
        )
        if fence_match and (not fence or line.strip() == fence):
            fence = "" if fence else fence_match[1]
        if (
            fence_match
            or is_code
            or not line.strip()
            or line.lstrip().startswith(("#", "|", "<", "!!!"))
            or _ITEM.match(line)
        ):
            if paragraph:
                yield number, paragraph, False
            paragraph = ""
        if not (fence_match or is_code):
            if line.startswith("|"):
                for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                    yield line_number, cell.strip(), True
            elif line.strip() and not line.lstrip().startswith(("#", "<", "!!!")):
                number = number if paragraph else line_number
                paragraph = f"{paragraph} {_ITEM.sub('', line).strip()}".strip()
        previous_blank = not line.strip() or (is_code and not fence)


def _blank_lines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def plain(text: str) -> str:
    """The text without markup: inline code is one word, a link is its text."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(`+)(?:(?!\1).)+\1", "Code", text)
    return re.sub(r"\*\*|\{[^}]*\}", "", text)


def sentences(text: str) -> list[str]:
    """The sentences of a block."""
    return [sentence for sentence in _SENTENCE_END.split(plain(text)) if count_words(sentence)]


def count_words(text: str) -> int:
    """The number of words; a number is one."""
    return len(re.findall(r"[^\W_][\w'.,-]*", text))


def problems(page: str, text: str) -> Iterator[str]:
    """The problems of a page, a line for each."""
    for number, block, is_cell in blocks(text):
        if is_cell and (count := count_words(plain(block))) > CELL_WORDS:
            yield f"{page}:{number}: a cell of {count} words (at most {CELL_WORDS})"
        for sentence in sentences(block):
            count, excerpt = count_words(sentence), sentence[:60]
            if count > SENTENCE_WORDS:
                yield f"{page}:{number}: {count} words (at most {SENTENCE_WORDS}): {excerpt}"
            if (passives := len(_PASSIVE.findall(sentence))) > PASSIVES:
                yield f"{page}:{number}: {passives} passives (at most {PASSIVES}): {excerpt}"
            for pattern, replacement in _BANNED:
                for match in pattern.finditer(sentence):
                    yield f"{page}:{number}: {match[0]} -> {replacement}"


def lengths(text: str) -> list[int]:
    """The words of each sentence of a page, without its tables."""
    return [count_words(sentence) for _, block, is_cell in blocks(text) if not is_cell for sentence in sentences(block)]


def main() -> None:
    """Prints the problems; exit code 1 if there are any."""
    texts = {page: Path(page).read_text() for page in sys.argv[1:]}
    lines = [line for page, text in texts.items() for line in problems(page, text)]
    written_texts = [text for text in texts.values() if not text.startswith(_GENERATED)]
    mean_words = statistics.mean(count for text in written_texts for count in lengths(text))
    if mean_words > MEAN_WORDS:
        lines.append(f"the mean sentence has {mean_words:.1f} words (at most {MEAN_WORDS})")
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
