"""Write down what BERT's uncased tokenizer does with every code point, as the library `tokenizers` does it.

    python tools/unicode_table.py

The rules depend on versions of Unicode, of which `tokenizers` has several inside. The table fixes them, so that a text
has the same pieces in every version of Python. A line has a range of code points and what becomes of them:

- `drop`: nothing, before accents are parted from letters; `strip`: nothing, after it
- `space`, or `apart`: a word of its own
- `to`: what the first of them becomes, the others follow
- `class`: canonical combining class, by which marks are sorted

Hangul syllables are not in it: arithmetic gives their letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import tokenizers
from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

OUT = Path(__file__).parents[1] / "src" / "divscore" / "encoders" / "minilm" / "unicode.txt"
POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)


def main() -> None:
    """Ask about every code point, and write the answers in ranges."""
    lines = [f"# made by tools/unicode_table.py from tokenizers {tokenizers.__version__}"]
    for (kind, *text), first, last in [*ranges(rule()), *ranges(combining_class())]:
        lines.append(" ".join([str(kind), f"{first:x}", f"{last:x}", *text]))
    OUT.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
    print(f"{len(lines):,} lines, {OUT.stat().st_size:,} bytes")


def rule() -> Callable[[int], tuple[object, ...]]:
    """What a code point becomes inside a word; the key of a range, () where it stays."""
    normaliser = BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    )
    cleaner = BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False
    )
    splitter = BertPreTokenizer()

    def key(point: int) -> tuple[object, ...]:
        words = [word for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(f"a{chr(point)}b"))]
        text = " ".join(words)[1:-1]
        if text == chr(point) or point in HANGUL:
            return ()
        if not text:
            return ("strip" if cleaner.normalize_str(chr(point)) else "drop",)
        if text in (" ", f" {chr(point)} "):
            return ("space" if text == " " else "apart",)
        # A range of letters with a constant distance has one line.
        return ("to", text if len(text) > 1 else ord(text) - point)

    return key


def combining_class() -> Callable[[int], tuple[object, ...]]:
    """The class by which a mark is sorted: found by trying it against a mark of every class."""
    nfd = NFD()
    marks = {unicodedata.combining(chr(point)): chr(point) for point in reversed(POINTS)}
    marks.pop(0)

    def turns(first: str, second: str) -> bool:
        return nfd.normalize_str(first + second) == second + first != first + second

    patterns = {tuple(turns(r, m) for r in marks.values()): kind for kind, m in marks.items()}

    def key(point: int) -> tuple[object, ...]:
        mark = nfd.normalize_str(chr(point))[0]
        if not turns("\u0345", mark) and not turns(mark, "\u0334") and mark not in ("\u0334", "\u0345"):
            return ()
        return ("class", patterns[tuple(turns(r, mark) for r in marks.values())])

    return key


def ranges(key: Callable[[int], tuple[object, ...]]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Runs of code points with the same key, written as words."""
    for found, run in groupby(POINTS, key):
        points = list(run)
        if not found:
            continue
        kind, *value = found
        text = ""
        if kind == "to":
            becomes = chr(points[0] + value[0]) if isinstance(value[0], int) else str(value[0])
            text = ",".join(f"{ord(char):x}" for char in becomes)
        elif kind == "class":
            text = str(value[0])
        yield tuple(filter(None, (str(kind), text))), points[0], points[-1]


if __name__ == "__main__":
    main()
