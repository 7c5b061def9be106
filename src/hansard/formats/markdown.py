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
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent

import msgspec

from hansard import messages
from hansard.messages import Message, Part
from hansard.records import Record, freeze, understood
from hansard.views.head import OPEN_STATUS
from hansard.views.history import inline
from hansard.views.words import line, safe, size_of, tokens

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from hansard.views.head import Head

_WAITING = 1000
"""Calls without a result of which the name is remembered."""


def pieces(head: Head | None, records: Iterable[Any]) -> Iterator[str]:
    """The document, a piece for each message: all that was said, and where the model's history changed."""
    yield f"# {_plain(head.title if head else '') or 'Untitled session'}\n"
    if head is not None:
        yield _facts(head)
    tools: dict[str, str] = {}
    before, empty = "", True
    for item in records:
        if isinstance(item, Record):
            record = understood(item)
            if record.kind == "history" and isinstance(record.data, dict):
                yield _join(_change(record.data, inline(record)))
                before = ""
                continue
            if record.kind != "message":
                continue
            payload, shape, note = record.data, record.shape, _note(record, head)
        else:
            payload, shape, note = freeze(item)[1], None, ""
        message = messages.read(payload, shape)
        yield _join(_message(message, payload, tools, before, note))
        before, empty = message.role, False
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


def _note(record: Record, head: Head | None) -> str:
    """When it was said; and by which model, where that is not the one of the whole session."""
    model = record.model if record.model and (head is None or record.model != head.model) else ""
    return " · ".join(filter(None, (_moment(record.when), _code(model))))


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _join(blocks: Iterable[str]) -> str:
    return "".join(f"\n{block}\n" for block in blocks)


# -- messages ---------------------------------------------------------------------------------------

_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def _message(
    message: Message, payload: Any, tools: dict[str, str], before: str, note: str = ""
) -> Iterator[str]:
    """The blocks of a message. Results stand below what they answer, without a heading of their own."""
    if message.role != "tool" or before not in ("assistant", "tool"):
        yield f"## {_SPEAKERS.get(message.role, 'Message')}"
        if note:
            yield note
    yield from _body(message, payload, tools)


def _body(message: Message, payload: Any, tools: dict[str, str]) -> Iterator[str]:
    shown = 0
    for part, images in _grouped(message.parts):
        for block in _part(part, images, tools):
            shown += 1
            yield block
    unread = any(part.kind == "other" and not part.text for part in message.parts)
    if unread or not (message.shape or message.parts):
        yield from _fold("As it was written", _json(payload), language="json")
    elif not shown:
        yield "*(empty)*"


def _grouped(parts: Sequence[Part]) -> Iterator[tuple[Part, list[Part]]]:
    """Each part with the images that come with it: a result with several is several parts."""
    group: list[Part] = []
    for part in parts:
        first = group[0] if group else None
        if first and part.kind == first.kind == "result" and part.id == first.id and not part.text:
            group.append(part)
            continue
        if first:
            yield first, group
        group = [part]
    if group:
        yield group[0], group


def _part(part: Part, group: Sequence[Part], tools: dict[str, str]) -> Iterator[str]:
    match part.kind:
        case "text" | "other":
            if part.text and not part.text.isspace():
                yield _quote(part.text)
        case "reasoning":
            if part.text and not part.text.isspace():
                yield from _folded("Reasoning", [_quote(part.text)])
            else:
                yield "*Reasoning that is not readable.*"
        case "call":
            if part.id and len(tools) < _WAITING:
                tools[part.id] = part.name
            shown = f" {_tag(line(part.text, 80))}" if part.text else ""
            yield from _fold(f"Call of {_tag(part.name or 'a tool')}{shown}", *_indented(part.text))
        case "result":
            name = part.name or tools.get(part.id, "")
            tools.pop(part.id, None)
            summary = f"Result of {_tag(name)}" if name else "Result"
            if part.error:
                summary += ": <strong>failed</strong>"
            elif part.text:
                summary += f" ({size_of(part.text)})"
            attached = [_attached("Image", one) for one in group if one.media]
            yield from _fold(summary, *_indented(part.text), beside=attached)
        case _:
            kind = "Image" if part.kind == "image" else "File"
            if part.text:
                yield from _fold(f"{kind} {_tag(part.name)}".rstrip(), part.text)
            else:
                yield _attached(kind, part)


def _attached(kind: str, part: Part) -> str:
    """A line that says what it is and where. A link, so that who opens the document loads nothing by it."""
    inside = part.media.startswith("data:")
    told = [f"*{kind}*", _code(part.name), _code(part.mime)]
    if inside:
        told.append(f"({size_of(part.media)}, not included)")
    elif re.match(r"https?://", part.media, re.IGNORECASE):
        target = percent(part.media, safe="!#$%&'()*+,/:;=?@[]~-._", errors="replace")
        told.append(f"[link](<{target.replace('&', '&amp;')}>)")
    else:
        told.append(_code(part.media))
    return " ".join(filter(None, told))


# -- changes of the history -------------------------------------------------------------------------

_CHANGES = {
    "checkpoint": "The model goes on from a summary of what was said so far.",
    "truncate": "The model goes on with the end of what was said so far.",
    "set": "The model goes on from messages that were set anew.",
    "pop": "What was said last was taken back: the model does not see it any more.",
    "clear": "The model goes on without what was said so far.",
    "rewind": "The model goes back to an earlier point, and on from there.",
}


def _change(data: dict[str, Any], written: Sequence[Any]) -> Iterator[str]:
    """A note between rules, with the messages that the model sees instead and nobody said."""
    op, summary = data.get("op"), data.get("summary")
    known = _CHANGES.get(op) if isinstance(op, str) else None
    yield "---"
    yield f"*{known or 'What the model sees was changed.'}*"
    blocks: list[str] = []
    tools: dict[str, str] = {}
    for payload in written:
        message = messages.read(payload)
        blocks.append(f"**{_SPEAKERS.get(message.role, 'Message')}**")
        blocks += _body(message, payload, tools)
    if blocks:
        yield from _folded("What the model sees instead", blocks)
    if op == "checkpoint" and isinstance(summary, str) and summary.strip():
        yield from _folded("Summary", [_quote(summary)])
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
