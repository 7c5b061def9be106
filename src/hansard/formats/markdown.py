"""A session as Markdown (CommonMark, with the tables of GitHub), for people.

What is quoted (`>`) or fenced was said; what stands outside is Hansard's: headings that name the speaker,
rules, folds. So nothing that was said can end its message, look like a heading between messages, or swallow
what follows. Text keeps its Markdown. What would reach beyond a quote does not: raw HTML is shown instead of
obeyed, and definitions of links and footnotes, which hold for a whole document, stay plain text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent

import msgspec

from hansard.views import turns
from hansard.views.head import OPEN_STATUS
from hansard.views.words import changed, gone, line, safe, size_of, tokens

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from hansard.views.head import Head
    from hansard.views.turns import TurnItem, TurnView


def pieces(head: Head | None, records: Iterable[Any]) -> Iterator[str]:
    """The document, a piece for each turn: all that was said, and where the model's history changed."""
    yield f"# {_plain(head.title if head else '') or 'Untitled session'}\n"
    if head is not None:
        yield _facts(head)
    model, before, empty = head.model if head else "", "", True
    for turn in turns.fold(records):
        yield _join(_turn(turn, model, before))
        if turn.items:
            before = _speaker(turn.items[-1])
            empty = empty and all(item.kind in _NOTES for item in turn.items)
    if empty:
        yield "\n*No messages.*\n"


def _facts(head: Head) -> str:
    facts = {
        "Session": _code(head.id),
        "Agent": _code(head.agent),
        "Model": " · ".join(filter(None, map(_code, (head.model, head.vendor, head.endpoint)))),
        "Workspace": _code(head.workspace),
        "Status": _code(head.status) if head.status != OPEN_STATUS else "",
        "Labels": ", ".join(map(_code, head.labels)),
        "Parent": _code(head.parent or ""),
        "Created": _moment(head.created_at),
        "Updated": _moment(head.updated_at),
        "Messages": f"{head.messages:,}" if head.messages else "",
        "Usage": tokens(head.usage),
    }
    return "\n" + "".join(f"- **{name}:** {fact}\n" for name, fact in facts.items() if fact)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _join(blocks: Iterable[str]) -> str:
    return "".join(f"\n{block}\n" for block in blocks)


# -- turns ------------------------------------------------------------------------------------------

_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_NOTES = ("change", "gone")
"""Items that are Hansard's own: nobody speaks in them."""


def _turn(turn: TurnView, model: str, before: str) -> Iterator[str]:
    """The blocks of a turn, message by message. Results stand below what they answer, and those of which the
    call is somewhere else without a heading of their own where that can be."""
    for said in _messages(turn.items):
        first = said[0]
        role = _speaker(first)
        if first.kind == "change":
            yield from _change(first)
        elif first.kind == "gone":
            yield f"*{gone(first.data)}*"
        else:
            if role != "tool" or before not in ("assistant", "tool"):
                yield f"## {_SPEAKERS.get(role, 'Message')}"
                if note := _note(first, model):
                    yield note
            yield from _body(said)
        before = role


def _messages(items: Iterable[TurnItem]) -> Iterator[list[TurnItem]]:
    """The items of each message."""
    return (list(said) for _, said in groupby(items, lambda item: (item.seq, item.inner, item.role)))


def _speaker(item: TurnItem) -> str:
    return "" if item.kind in _NOTES else item.role


def _note(item: TurnItem, model: str) -> str:
    """When it was said; and by which model, where that is not the one of the whole session."""
    moment = _moment(item.at) if item.at else ""
    return " · ".join(filter(None, (moment, _code(item.model) if item.model != model else "")))


def _body(items: Iterable[TurnItem]) -> Iterator[str]:
    for item in items:
        yield from _item(item)


def _item(item: TurnItem) -> Iterator[str]:
    match item.kind:
        case "text":
            yield _quote(item.text) if item.text else "*(empty)*"
        case "other":
            if item.text:
                yield _quote(item.text)
            else:
                yield from _fold("As it was written", _json(item.data), language="json")
        case "reasoning":
            if item.text and not item.text.isspace():
                yield from _folded("Reasoning", [_quote(item.text)])
            else:
                yield "*Reasoning that is not readable.*"
        case "call":
            shown = f" {_tag(line(item.text, 80))}" if item.text else ""
            yield from _fold(f"Call of {_tag(item.name or 'a tool')}{shown}", *_indented(item.text))
            yield from _body(item.items)
        case "result":
            summary = f"Result of {_tag(item.name)}" if item.name else "Result"
            if item.error:
                summary += ": <strong>failed</strong>"
            elif item.text:
                summary += f" ({size_of(item.text)})"
            yield from _fold(summary, *_indented(item.text), beside=map(_attached, item.items))
        case "image" | "file" if item.text:
            yield from _fold(f"{item.kind.title()} {_tag(item.name)}".rstrip(), item.text)
        case _:
            yield _attached(item)


def _attached(item: TurnItem) -> str:
    """A line that says what it is and where. A link, so that who opens the document loads nothing by it."""
    told = [f"*{item.kind.title()}*", _code(item.name), _code(item.mime)]
    if item.media.startswith("data:"):
        told.append(f"({size_of(item.media)}, not included)")
    elif re.match(r"https?://", item.media, re.IGNORECASE):
        target = percent(item.media, safe="!#$%&'()*+,/:;=?@[]~-._", errors="replace")
        told.append(f"[link](<{target.replace('&', '&amp;')}>)")
    else:
        told.append(_code(item.media))
    return " ".join(filter(None, told))


# -- changes of the history -------------------------------------------------------------------------


def _change(item: TurnItem) -> Iterator[str]:
    """A note between rules, with the messages that the model sees instead and nobody said."""
    yield "---"
    yield f"*{changed(item.name)}*"
    blocks: list[str] = []
    for said in _messages(item.items):
        blocks.append(f"**{_SPEAKERS.get(said[0].role, 'Message')}**")
        blocks += _body(said)
    if blocks:
        yield from _folded("What the model sees instead", blocks)
    if item.text.strip():
        yield from _folded("Summary", [_quote(item.text)])
    yield "---"


# -- what cannot break out --------------------------------------------------------------------------


def _folded(summary: str, blocks: Iterable[str]) -> Iterator[str]:
    """Blocks that a reader opens. `summary` is HTML."""
    yield f"<details>\n<summary>{summary}</summary>"
    yield from blocks
    yield "</details>"


def _fold(summary: str, text: str, language: str = "", beside: Iterable[str] = ()) -> Iterator[str]:
    return _folded(summary, [_fence(text, language) if text else "*(empty)*", *beside])


def _fence(text: str, language: str = "") -> str:
    shown = safe(text).removesuffix("\n")
    ticks = "`" * (max(map(len, re.findall("`{3,}", shown)), default=2) + 1)
    return f"{ticks}{language}\n{shown}\n{ticks}"


def _indented(text: str) -> tuple[str, str]:
    """Text, and its language: JSON that stands on one line gets a line for each member."""
    if text[:1] in ("{", "[") and "\n" not in text:
        try:
            return msgspec.json.format(text, indent=2), "json"
        except (ValueError, RecursionError):
            pass
    return text, ""


def _json(payload: Any) -> str:
    return json.dumps(payload, ensure_ascii=False, indent=2)


def _tag(text: str) -> str:
    """A name as code, in HTML."""
    shown = escape(line(text, 200), quote=False)
    return f"<code>{shown}</code>" if shown else ""


def _code(text: str) -> str:
    """A name as code: no Markdown or HTML in it counts."""
    shown = line(text)
    if not shown:
        return ""
    runs = set(map(len, re.findall("`+", shown)))
    ticks = "`" * next(n for n in range(1, len(shown) + 2) if n not in runs)
    gap = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{ticks}{gap}{shown}{gap}{ticks}"


def _plain(text: str) -> str:
    """A line of text in which no Markdown or HTML counts."""
    shown = re.sub(r"[\\`*_\[\]{}~|$#@]|:(?=//)|(?<=www)\.", r"\\\g<0>", line(text))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quote(text: str) -> str:
    """What somebody said, quoted."""
    quoted = "\n".join(f"> {line}" if line else ">" for line in safe(text).strip("\n").split("\n"))
    return _contained(quoted) if _REACHES_OUT.search(quoted) else quoted


# -- what would reach beyond a quote ----------------------------------------------------------------

_REACHES_OUT = re.compile(r"<[A-Za-z/!?]|\]:")
_HTML = re.compile(r"(?<!\\)(\\*)<(?=[A-Za-z/!?])")
_HTML_LINE = re.compile(r"^([ \t>]*)<(?=[A-Za-z/!?])", re.MULTILINE)  # ends a paragraph, in a code span too
_AT_THE_START = r"(^[ \t>0-9.)*+-]*)"  # of a line, or of a paragraph, after the marks of quotes and lists
_FOOTNOTE = re.compile(_AT_THE_START + r"\[(?=\^[^\]\n]+\]:)", re.MULTILINE)
_DEFINITION = re.compile(_AT_THE_START + r"\[(?=(?:\\.|[^\[\]\\])*\]:)", re.DOTALL)
_INLINE = re.compile(
    r"(?P<ticks>`+)|(?P<escaped>\\[!-/:-@\[-`{-~])|(?P<link><(?:https?|mailto):[^\s<>]*>)|<(?=[A-Za-z/!?])"
)

_LONGEST = 1_000_000
"""Characters of a text in which code is told from prose."""


def _contained(quoted: str) -> str:
    """A quote without HTML and definitions. In code they are left alone, for there they do nothing.

    The parser that finds the blocks knows neither, so it finds those that there are once both are gone.
    """
    if len(quoted) > _LONGEST:
        return _bare(quoted)
    lines = quoted.split("\n")
    out: list[str] = []
    done, before = 0, ""  # which kind of block ends where the next one begins
    for token in _parser().parse(quoted):
        if token.map is None or token.type not in ("fence", "code_block", "table_open", "inline"):
            continue
        start, end = token.map
        if start < done:  # the cells of a table
            continue
        if start > done:
            out.append(_bare("\n".join(lines[done:start])))
            before = ""
        text = "\n".join(lines[start:end])
        match before, token.type:
            # A reader without tables takes these for one paragraph: no code is code to both.
            case ("inline", "table_open") | ("table_open", "code_block"):
                out.append(_bare(text))
            case _, "inline":
                out.append(_prose(text)[0])
            case _, "table_open":
                out.append(_table(text))
            case _:
                out.append(text)
        before = token.type
        done = end
    if done < len(lines):
        out.append(_bare("\n".join(lines[done:])))
    return "\n".join(out)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # only texts with something like HTML in them need it

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(["reference", "inline"])


def _bare(text: str) -> str:
    """Text in which nothing counts as code: safe wherever it stands."""
    text = _HTML.sub(lambda m: m[1][: len(m[1]) // 2 * 2] + "&lt;", _FOOTNOTE.sub(r"\1\\[", text))
    return text.replace("]:", "]\\:")


def _prose(text: str) -> tuple[str, bool]:
    """A paragraph or a heading, its code spans left alone; and whether each run of backticks was one end of
    a span."""
    text = _DEFINITION.sub(r"\1\\[", _FOOTNOTE.sub(r"\1\\[", text), count=1)
    runs: dict[int, list[int]] = {}
    for run in re.finditer("`+", text):
        runs.setdefault(len(run[0]), []).append(run.start())
    out: list[str] = []
    done, paired = 0, True
    while found := _INLINE.search(text, done):
        out.append(text[done : found.start()])
        done = found.end()
        if found["ticks"]:
            places = runs.get(len(found[0]), [])
            closing = bisect_left(places, done)
            if closing < len(places):
                done = places[closing] + len(found[0])
            else:
                paired = False
            out.append(_HTML_LINE.sub(r"\1&lt;", text[found.start() : done]))
        elif found["link"] or (found["escaped"] and found["escaped"] != "\\<"):
            out.append(found[0])
        else:
            out.append("&lt;")
    return "".join((*out, text[done:])), paired


def _table(text: str) -> str:
    """A table. Its code spans count where none can reach from one cell into another, and no row can define
    anything for a reader without tables."""
    cells = [cell for row in text.split("\n") for cell in row.split("|")]
    sure = "\\" not in text and "]:" not in text and all(_prose(cell)[1] for cell in cells)
    return _prose(text)[0] if sure else _bare(text)
