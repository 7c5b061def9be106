"""Text as a search sees it: words without case and accents, and scripts that put no spaces by character.

`fold` writes a text so that its words are what stands between anything but ASCII letters, ASCII digits and
characters beyond ASCII: `WORDS` finds them. SQLite's `ascii` tokenizer cuts the same words. What is the
same letter for a search is settled here, and described in docs/search.md.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from unicodedata import category, normalize

LETTER = "[0-9A-Za-z\x80-\U0010ffff]"
"""What words consist of, once a text was folded."""

WORDS = re.compile(f"{LETTER}+")

_BEYOND = re.compile("[^\x00-\x7f]+")

# Marks that only colour the letter before them: accents, Hebrew points, Arabic vowels. Marks of other scripts
# (the vowels of Devanagari, say) are letters for those who read them.
_ACCENTS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
    "\ufe20-\ufe2f"
)
# What is invisible and parts nothing: soft hyphen, joiners, marks of direction, variation selectors.
_INVISIBLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)

# Each of these is a word: Chinese characters, kana, Hangul, bopomofo, Yi; Thai, Lao, Burmese, Khmer; emoji.
_ALONE = (
    "\u0e00-\u0e3a\u0e40-\u0eff\u1000-\u109f\u1780-\u17df\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48c\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7a3\uf900-\ufaff"
    "\u2600-\u27bf\u2b00-\u2bff\U0001b000-\U0001b16f\U0001f000-\U0001faff\U00020000-\U0003ffff"
)

# A character and what is written as one with it: accents, parts of a Hangul syllable, voiced marks of kana.
_UNIT = re.compile("(?s:.)[\u0300-\u036f\u1160-\u11ff\u3099\u309a\uff9e\uff9f]*")

# Letters that no decomposition takes apart, and that people without them on their keyboard write so.
_ALIKE = str.maketrans(
    {
        "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th",
        "ĸ": "k", "ŋ": "n",
    }
)  # fmt: skip


class _Units(dict[str, str]):
    """What each unit becomes, worked out once."""

    def __missing__(self, unit: str) -> str:
        folded = _fold(unit)
        if len(self) < 50_000 and len(unit) < 9:
            self[unit] = folded
        return folded


class _Runs(dict[str, str]):
    """What short runs of characters beyond ASCII become: there are few in texts that are mostly ASCII."""

    def __missing__(self, run: str) -> str:
        folded = "".join(map(_units.__getitem__, _UNIT.findall(run)))
        if len(self) < 50_000 and len(run) < 9:
            self[run] = folded
        return folded


_units, _runs = _Units(), _Runs()


@cache
def _kinds() -> tuple[Callable[[str], object], Callable[[str], object]]:
    """What says of a character that it is nothing, and that it is a word alone. They take a while to make,
    and many a text has nothing but ASCII in it."""
    return re.compile(f"[{_ACCENTS}{_INVISIBLE}]").fullmatch, re.compile(f"[{_ALONE}]").fullmatch


def _fold(unit: str) -> str:
    is_nothing, is_alone = _kinds()
    found = []
    for character in normalize("NFKC", normalize("NFKC", unit).casefold()):
        if is_nothing(character):
            continue
        if is_alone(character):
            found.append(f" {character} ")
        elif character.isascii():  # what ⅓, ㎏ or ﬁ consist of
            found.append(character if character.isalnum() else " ")
        else:
            for part in normalize("NFD", character).casefold():
                if not is_nothing(part):
                    found.append(part if category(part)[0] in "LNM" or category(part) == "Co" else " ")
    folded = "".join(found).translate(_ALIKE)
    return f" {folded} " if category(unit[0]) == "So" else folded  # ™ is no part of the name before it


def fold(text: str) -> str:
    """Text as it is indexed and compared: what `WORDS` finds in it are its words.

    >>> fold("Straße, CAFÉ"), fold("İstanbul ΟΔΟΣ"), fold("用SQL查询").split()
    ('strasse, cafe', 'istanbul οδοσ', ['用', 'sql', '查', '询'])
    """
    if text.isascii():
        return text.lower()
    return _BEYOND.sub(_folded_run, text).encode(errors="replace").lower().decode()  # of bytes only ASCII


def indexed(text: str) -> str:
    """The same for somebody who does not tell ASCII's capital letters apart."""
    return text if text.isascii() else _BEYOND.sub(_folded_run, text)


def _folded_run(match: re.Match[str]) -> str:
    return _runs[match[0]]


class Places:
    """Where in a text that stands which stands in the folded one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begins: list[int] = []  # of each run, in the folded text
        self._runs: list[tuple[int, int, int]] = []  # begin and end in the text, end in the folded one
        at = shift = 0
        for match in () if text.isascii() else _BEYOND.finditer(text):
            begin, end = match.span()
            at = begin + shift
            stop = at + len(_runs[match[0]])
            self._begins.append(at)
            self._runs.append((begin, end, stop))
            shift = stop - end

    def begin(self, place: int) -> int:
        """Where in the text the character stands that has this place in the folded one."""
        return self._unit(place)[0]

    def end(self, place: int) -> int:
        """Behind the character that ends there, and what is written as one with it."""
        stop = self._unit(place - 1)[1]
        while stop < len(self._text) and not self._text[stop].isascii() and not _units[self._text[stop]]:
            stop += 1
        return stop

    def _unit(self, place: int) -> tuple[int, int]:
        n = bisect_right(self._begins, place) - 1
        if n < 0:
            return place, place + 1
        begin, end, stop = self._runs[n]
        if place >= stop:
            return end + place - stop, end + place - stop + 1
        at = self._begins[n]
        for match in _UNIT.finditer(self._text, begin, end):
            at += len(_units[match[0]])
            if at > place:
                return match.span()
        return end, end
