"""A session as plain lists: the contract once more, written without looking at the library.

What the tests that compare random runs have in common: messages as agents write them, and `Log`, a list
of records beside a list of what the model sees after each of them. Slow and obvious on purpose.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import regex
from hypothesis import strategies as st

from hansard import Conflict

# -- messages ---------------------------------------------------------------------------------------

TEXTS = (
    "Build a login page",
    "continue",
    "",
    " \t\n",
    "  two   words\nand a line\r\n",
    "nul \0 bell \a escape \x1b[31m",
    "quotes \" ' \\ <b>&amp;</b>",
    "line\u2028and\u2029paragraph\x85next",
    "\ufeffmark first",
    "e\u0301 is not \u00e9, \u2126 is not \u03a9",
    "👩‍👩‍👧‍👦 🇨🇭 👍🏽 " * 30,
    "修复登录页面的错误。" * 13,
    "مرحبا \u202eabc\u202c שלום",
    "\U0010ffff\ue000\ufffe\uffff",
    "x" * 200,
    '{"kind":"message","seq":3,"sum":"00000000"}\n',
)
CALL_IDS = ("call_1", "call_2", "toolu_3")


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


def openai_call(*ids: str) -> Any:
    made = [{"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def openai_result(id: str, text: str = "a.txt") -> Any:
    return {"role": "tool", "tool_call_id": id, "content": text}


def anthropic_call(*ids: str) -> Any:
    made = [{"type": "tool_use", "id": id, "name": "ls", "input": {"path": "."}} for id in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, *made]}


def anthropic_result(*ids: str, text: str = "") -> Any:
    given = [{"type": "tool_result", "tool_use_id": id, "content": "a.txt"} for id in ids]
    return {"role": "user", "content": [*given, *([{"type": "text", "text": text}] if text else [])]}


def hosted(id: str) -> Any:
    """A call that the provider ran itself: made and answered in one message."""
    made = {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "login"}}
    answered = {"type": "web_search_tool_result", "tool_use_id": id, "content": []}
    return {"role": "assistant", "content": [made, answered, {"type": "text", "text": "Found it."}]}


def item_call(id: str) -> Any:
    return {"type": "function_call", "call_id": id, "name": "ls", "arguments": "{}"}


def item_result(id: str) -> Any:
    return {"type": "function_call_output", "call_id": id, "output": "a.txt"}


ODD: tuple[Any, ...] = (
    "just a text",
    ["a", ["list"], {}],
    None,
    False,
    2**70,
    -0.5,
    {},
    {"text": "no role", "n": 1},
    {"role": "user", "content": [{"type": "text", "text": "Two"}, {"type": "text", "text": "texts"}]},
    {"role": "user", "content": "more", "zusätzlich": {"b": 1, "a": [1.5, None]}},
    {"role": "system", "content": "Be brief."},
)


def messages() -> st.SearchStrategy[Any]:
    """Messages in the forms of several providers, and what is nobody's form."""
    text = st.sampled_from(TEXTS) | st.text(max_size=6)
    id = st.sampled_from(CALL_IDS)
    return st.one_of(
        text.map(user),
        text.map(assistant),
        st.sampled_from(ODD),
        st.builds(openai_call, id),
        st.sampled_from((openai_call(*CALL_IDS[:2]), anthropic_call(*CALL_IDS[1:]))),
        st.builds(openai_result, id, text),
        st.builds(anthropic_call, id),
        st.builds(lambda id, text: anthropic_result(id, text=text), id, st.sampled_from(("", "Go on"))),
        st.sampled_from((anthropic_result(*CALL_IDS[:2]), hosted("srv_1"))),
        st.builds(item_call, id),
        st.builds(item_result, id),
    )


def pairs(payload: Any) -> tuple[list[str], list[str]]:
    """The tool calls that a message makes, and those that it answers."""
    if not isinstance(payload, dict):
        return [], []
    if payload.get("type") == "function_call":
        return [payload["call_id"]], []
    if payload.get("type") == "function_call_output":
        return [], [payload["call_id"]]
    if payload.get("role") == "tool":
        return [], [payload["tool_call_id"]]
    made = [call["id"] for call in payload.get("tool_calls", ())]
    content = payload.get("content")
    blocks = content if isinstance(content, list) else []
    made += [block["id"] for block in blocks if block["type"] in ("tool_use", "server_tool_use")]
    return made, [block["tool_use_id"] for block in blocks if block["type"].endswith("tool_result")]


def said_by_user(payload: Any) -> str:
    """The text that a person typed, if a person speaks."""
    if not isinstance(payload, dict) or payload.get("role") != "user":
        return ""
    content = payload["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def is_input(payload: Any) -> bool:
    """Whether a person, or nobody knows who, put something in."""
    if isinstance(payload, dict) and ("role" in payload or "call_id" in payload):
        return bool(said_by_user(payload).strip())
    return True


def same(one: Any, other: Any) -> bool:
    """Whether two payloads are the same JSON: True is not 1, and 1 is not 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def cut(text: str, graphemes: int) -> str:
    """On one line, and no longer than so many characters as a person counts them."""
    folded = " ".join(text.split())
    clusters = regex.findall(r"\X", folded)
    return folded if len(clusters) <= graphemes else "".join(clusters[: graphemes - 1]).rstrip() + "…"


def edited(given: Sequence[Any], how: int, place: int, payload: Any) -> list[Any]:
    """A history as a caller hands it back who keeps the whole list himself."""
    at = place % (len(given) + 1)
    return [
        list(given),
        [*given, payload],
        [*given, payload, payload],
        [*given[:at], payload, *given[at:]],
        [*given[:at], *given[at + 1 :]],
        [*given[at:], *given[:at]],
        [*given[:at], payload, *given[at + 1 :], payload],
    ][how]


# -- the log ----------------------------------------------------------------------------------------


class Said:
    """A message that the model may see, and the record that has it. It is the same only as itself."""

    def __init__(self, payload: Any, seq: int) -> None:
        self.payload = payload
        self.seq = seq


class Known:
    """What one handle has given out or written: which messages, and as of which change of the history."""

    def __init__(self) -> None:
        self.said: set[Said] = set()
        self.after = -1

    def look(self, log: Log) -> None:
        self.said = set(log.history)
        self.after = log.changed


class Log:
    """Every record of a session, and after each of them what the model sees, the summary, the count."""

    def __init__(self, id: str, at: datetime, head: dict[str, Any] | None = None) -> None:
        self.id = id
        self.gone = False
        self.given = head or {}
        self.records: list[dict[str, Any]] = []
        self.seen: list[list[Said]] = []
        self.summaries: list[str] = []
        self.counts: list[int | None] = []
        self.changed = -1  # the newest record that changed the history
        self._add("session", None, at, [])

    # -- reading

    @property
    def seq(self) -> int:
        return len(self.records) - 1

    @property
    def history(self) -> list[Said]:
        return self.seen[-1]

    def payloads(self, seq: int = -1) -> list[Any]:
        return [said.payload for said in self.seen[seq]]

    def first(self, id: str | None) -> dict[str, Any] | None:
        """The record that has this id."""
        return next((r for r in self.records if id is not None and r["id"] == id), None)

    # -- writing

    def _add(self, kind: str, data: Any, at: datetime, seen: list[Said], **more: Any) -> dict[str, Any]:
        record = {"seq": len(self.records), "kind": kind, "data": data, "at": at, "id": more.get("id")}
        record |= {"time": more.get("time"), "usage": more.get("usage")}
        self.records.append(record)
        self.seen.append(seen)
        self.summaries.append(more.get("summary", self.summaries[-1] if self.summaries else ""))
        self.counts.append(more.get("count", self.counts[-1] if self.counts else None))
        return record

    def note(self, kind: str, data: Any, at: datetime, *, id: str | None = None) -> dict[str, Any]:
        """A record that is no message."""
        more = {}
        if kind == "meta" and "summary" in data.get("set", {}):
            more["summary"] = data["set"]["summary"]
        if kind == "meta" and "summary" in data.get("unset", ()):
            more["summary"] = ""
        return self._add(kind, data, at, self.history, id=id, **more)

    def say(
        self,
        payloads: Sequence[Any],
        at: datetime,
        *,
        ids: Sequence[str | None] | None = None,
        expect: int | None = None,
        known: Known | None = None,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """Messages, all or none; whose id is there already is there already."""
        ids = ids or [None] * len(payloads)
        firsts = {r["id"]: (r["kind"], r["data"]) for r in self.records if r["id"] is not None}
        new = False
        for id, payload in zip(ids, payloads, strict=True):
            if id in firsts and not (firsts[id][0] == "message" and same(firsts[id][1], payload)):
                raise Conflict("another message under the same id")
            new = new or id not in firsts
            if id is not None:
                firsts[id] = ("message", payload)
        if new and expect is not None and expect != self.seq:
            raise Conflict("not the last record")
        records = []
        for id, payload in zip(ids, payloads, strict=True):
            first = self.first(id)
            if first is None:
                said = Said(payload, len(self.records))
                first = self._add("message", payload, at, [*self.history, said], id=id, **more)
            if known is not None:
                known.said.update(said for said in self.history if said.seq == first["seq"])
            records.append(first)
        return records

    # -- changing what the model sees

    def _sight(self, known: Known, upto: int | None = None) -> list[Said]:
        """The part of the history that a change applies to; the others stay after its result."""
        if upto is None:
            if known.after != self.changed:
                raise Conflict("the history was changed since")
            return [said for said in self.history if said in known.said]
        if not -1 <= upto <= self.seq:
            raise ValueError("no such record")
        if upto < self.changed:
            raise Conflict("older than the newest change")
        return [said for said in self.history if said.seq <= upto]

    def _change(
        self, known: Known, mine: list[Said], result: list[Said], at: datetime, **more: Any
    ) -> dict[str, Any]:
        rest = [said for said in self.history if said not in mine and said not in result]
        if more.pop("pairs", False):
            rest = answered(mine, rest, result, first=more["call"] == "truncate")
        known.said = set(result) | (set(rest) & known.said)
        seq = len(self.records)
        for said in result:
            if said.seq < 0:
                said.seq = seq
        record = self._add("history", more.pop("call"), at, result + rest, **{"count": None, **more})
        self.changed = known.after = seq
        return record

    def checkpoint(
        self,
        known: Known,
        messages: Iterable[Any],
        at: datetime,
        *,
        upto: int | None = None,
        token_count: int | None = None,
        summary: str | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        messages = list(messages)
        call = ["checkpoint", messages, upto, token_count, summary]
        first = self.first(id)
        if first is not None:
            if first["kind"] != "history" or not same(first["data"], call):
                raise Conflict("another call under the same id")
            return first
        mine = self._sight(known, upto)
        more: dict[str, Any] = {} if summary is None else {"summary": summary}
        result = [Said(payload, -1) for payload in messages]
        return self._change(known, mine, result, at, call=call, count=token_count, id=id, **more)

    def set_history(self, known: Known, messages: Sequence[Any], at: datetime) -> dict[str, Any] | None:
        mine = self._sight(known)
        begins = len(messages) >= len(mine) and all(
            same(said.payload, payload) for said, payload in zip(mine, messages, strict=False)
        )
        if begins:
            new = messages[len(mine) :]
            return self.say(new, at, known=known)[-1] if new else None
        there = Counter(json.dumps(said.payload, sort_keys=True) for said in mine)
        fresh = []
        for payload in messages:
            fresh.append(not there[json.dumps(payload, sort_keys=True)])
            there[json.dumps(payload, sort_keys=True)] -= not fresh[-1]
        end = len(messages)
        if len(mine) == len(self.history):  # nobody's message has to come after the new ones
            while end and fresh[end - 1]:
                end -= 1
        record = self._change(known, mine, [Said(payload, -1) for payload in messages[:end]], at, call="set")
        self.say(messages[end:], at, known=known)
        return record

    def truncate(self, known: Known, keep: int, at: datetime, *, pairs: bool) -> dict[str, Any] | None:
        mine = self._sight(known)
        start = len(mine) if keep <= 0 else max(0, len(mine) - keep)
        while pairs and start and torn(mine, start):
            start += 1
        if not start:
            return None
        return self._change(known, mine, mine[start:], at, call="truncate", pairs=pairs)

    def pop(self, known: Known, n: int, at: datetime, *, pairs: bool) -> list[Any]:
        mine = self._sight(known)
        stop = max(0, len(mine) - n)
        while pairs and n and any(i < stop <= j for i, j in answers(mine) if i is not None):
            stop -= 1
        if stop < len(mine):
            self._change(known, mine, mine[:stop], at, call="pop", pairs=pairs)
        return [said.payload for said in mine[stop:]]

    def clear(self, known: Known, at: datetime) -> dict[str, Any] | None:
        mine = self._sight(known)
        if not mine and not self.summaries[-1]:
            return None
        return self._change(known, mine, [], at, call="clear", summary="")

    def rewind(self, known: Known, seq: int, at: datetime) -> dict[str, Any]:
        if not 0 <= seq <= self.seq:
            raise ValueError("no such record")
        mine = self._sight(known)
        return self._change(
            known,
            mine,
            list(self.seen[seq]),
            at,
            call="rewind",
            summary=self.summaries[seq],
            count=self.counts[seq],
        )

    # -- the head

    def head(self) -> dict[str, Any]:
        """How the session stands, from all of its records."""
        head: dict[str, Any] = {
            "agent": "", "model": "", "workspace": "", "status": "active", "labels": [], "meta": {},
            "pinned": False, "title": None, "preview": "", "messages": 0, "input": False,
            "tokens": 0, "calls": 0,
            "created_at": self.records[0]["at"], "updated_at": self.records[0]["at"], "ended_at": None,
        }  # fmt: skip
        first = ""
        self._update(head, self.given, (), self.records[0]["at"])
        for record in self.records:
            if record["kind"] == "meta":
                self._update(
                    head, record["data"].get("set", {}), record["data"].get("unset", ()), record["at"]
                )
            usage = record["data"] if record["kind"] == "usage" else record["usage"]
            if usage:
                head["tokens"] += usage["input_tokens"] + usage["output_tokens"]
                head["calls"] += 1
            if record["kind"] != "message":
                continue
            head["messages"] += 1
            time = record["time"]
            ahead = time is not None and time > record["at"] + timedelta(days=1)
            head["updated_at"] = record["at"] if time is None or ahead else time
            head["input"] = head["input"] or is_input(record["data"])
            said = said_by_user(record["data"])
            if said.strip():
                first = first or cut(said, 60)
                head["preview"] = cut(said, 120)
        head["title"] = first if head["title"] is None else head["title"]
        return head

    def _update(self, head: dict[str, Any], given: dict[str, Any], gone: Iterable[str], at: datetime) -> None:
        blank: dict[str, Any] = {"title": None, "status": "active", "labels": [], "meta": {}, "pinned": False}
        for name in given:
            if name == "meta":
                head["meta"] = {**head["meta"], **given["meta"]}
            elif name == "labels":
                head["labels"] = sorted(set(given["labels"]))
            else:
                head[name] = blank.get(name, "") if given[name] is None else given[name]
        for name in gone:
            if name.startswith("meta."):
                head["meta"] = {key: value for key, value in head["meta"].items() if key != name[5:]}
            else:
                head[name] = blank.get(name, "")
        if "status" in given or "status" in gone:
            head["ended_at"] = None if head["status"] == "active" else at


def answers(given: Sequence[Said]) -> list[tuple[int | None, int]]:
    """Each result, by the place of its message, with the place of the call that it answers: the last one of
    that id before it, if there is one."""
    made: dict[str, int] = {}
    found: list[tuple[int | None, int]] = []
    for place, said in enumerate(given):
        calls, results = pairs(said.payload)
        made |= dict.fromkeys(calls, place)
        found += [(made.get(id), place) for id in results]
    return found


def answered(
    mine: Sequence[Said], rest: Sequence[Said], result: Sequence[Said], *, first: bool
) -> list[Said]:
    """The rest without what has lost its call, one after the other until nothing has."""
    left = list(rest)
    while True:
        before = answers([*mine, *rest])
        had = {([*mine, *rest])[place] for call, place in before if call is not None}
        final = [*result, *left]
        orphans = [final[place] for call, place in answers(final) if call is None]
        lost = [said for said in orphans if said in left and (said in had or (first and said is final[0]))]
        if not lost:
            return left
        left.remove(lost[0])


def torn(given: Sequence[Said], start: int) -> bool:
    """Whether a history that begins there has a result apart from its call, or begins with an orphan."""
    return any(
        (call is None and result == start) or (call is not None and call < start <= result)
        for call, result in answers(given)
    )
