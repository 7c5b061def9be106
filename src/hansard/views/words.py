"""Text that a person can be shown: words, numbers, and what was said without what hides in it.

A transcript is hostile input. Whatever comes from one goes through `safe` or `line` before it is shown, on
a screen or in a document; what more a form of document needs is done there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard.views.usage import Usage

# Control characters but newline and tab; what reorders text or hides in it; halves of characters.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
# Marks that sit on the character before them; more than a few only serve to paint over other lines.
_MARKS = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILE = re.compile(f"({_MARKS}{{4}}){_MARKS}+")


def safe(text: str) -> str:
    """Text as it can be shown: control characters become visible, lines stay lines.

    >>> safe("\\x1b[2Jgone\\x00 \\u202egnp.exe")
    '␛[2Jgone␀ <U+202E>gnp.exe'
    """
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_visible, _PILE.sub(r"\1", text.replace("\r\n", "\n")))


def line(text: str, longest: int = 2000) -> str:
    """The same on one line, white space folded, of a text of any length.

    >>> line("Build\\n  a login page")
    'Build a login page'
    """
    cut = text[: longest * 4]
    folded = safe(" ".join(cut.split()))
    return folded if len(folded) <= longest and len(cut) == len(text) else folded[: longest - 1] + "…"


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code < 0xE000:
        return "\N{REPLACEMENT CHARACTER}"
    return f"<U+{code:04X}>"


# -- words ------------------------------------------------------------------------------------------


def plural(count: int, one: str, many: str = "") -> str:
    """A number and its noun.

    >>> plural(1, "session"), plural(1200, "session"), plural(0, "reply", "replies")
    ('1 session', '1,200 sessions', '0 replies')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int) -> str:
    """A number of bytes.

    >>> size(214), size(12_600), size(3_000_000)
    ('214 B', '12.6 KB', '3.0 MB')
    """
    if count < 1000:
        return f"{count} B"
    for unit, worth in (("KB", 1000), ("MB", 1000**2)):
        if count < worth * 1000:
            return f"{count / worth:.1f} {unit}"
    return f"{count / 1000**3:.1f} GB"


def size_of(text: str) -> str:
    """The size of a text."""
    return size(len(text.encode(errors="replace")))


def tokens(usage: Usage) -> str:
    """What it cost, in a few words; "" where nothing is known."""
    counts = (
        (usage.input_tokens, "in"),
        (usage.output_tokens, "out"),
        (usage.cache_read_tokens, "read from cache"),
        (usage.cache_write_tokens, "written to cache"),
        (usage.reasoning_tokens, "of reasoning"),
    )
    told = [f"{count:,} {what}" for count, what in counts if count]
    if not told and usage.total_tokens:
        told = [f"{usage.total_tokens:,} in all"]
    cost = "" if usage.cost is None else f"${usage.cost:,.4f}".rstrip("0").rstrip(".")
    return " · ".join(piece for piece in (", ".join(told), cost) if piece)


_CHANGES = {
    "checkpoint": "The model goes on from a summary of what was said so far.",
    "truncate": "The model goes on with the end of what was said so far.",
    "set": "The model goes on from messages that were set anew.",
    "pop": "What was said last was taken back: the model does not see it any more.",
    "clear": "The model goes on without what was said so far.",
    "rewind": "The model goes back to an earlier point, and on from there.",
    "fork": "What was said so far is a copy from another session.",
}


def changed(op: str) -> str:
    """What a change of the history did, by the name of the call."""
    return _CHANGES.get(op, "What the model sees was changed.")


def gone(kinds: dict[str, int]) -> str:
    """What `vacuum` took out, by the kinds of records that it counted.

    >>> gone({"message": 412, "history": 1})
    '412 messages that the model no longer sees were taken out here.'
    """
    count = kinds.get("message", 0)
    if not count:
        return "Records of changes that are over were taken out here."
    were = "was" if count == 1 else "were"
    return f"{plural(count, 'message')} that the model no longer sees {were} taken out here."
