"""Messages as providers accept them: calls with their results, no empty texts, no id twice.

It works on copies of what it changes; what is acceptable already comes back equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hansard.messages import reading

INTERRUPTED = "The call was interrupted and gave no result."
"""What `repair` answers a call with that was never answered."""


class _Slot(msgspec.Struct, eq=False):
    """A call or a result, and where it is: the whole payload, a block of it, an entry of `tool_calls`."""

    entry: int
    where: str  # "self", "block", "tool_calls" or "function_call"
    index: int
    id: str
    name: str
    group: int = 0
    other: _Slot | None = None
    fresh: str = ""  # of a call: the id that it gets because its own was taken
    stays: bool = False  # of a result: it is where it belongs


class _Entry(msgspec.Struct, eq=False):
    """A payload of the list, and what has to be known of it to put it right."""

    payload: Any
    shape: str
    role: str = ""
    body: dict[str, Any] = {}
    member: str = ""  # where the blocks are, if there are any
    blocks: Sequence[Any] = ()
    calls: list[_Slot] = []
    results: list[_Slot] = []
    repeated: dict[int, _Slot] = {}  # LangChain: entries of `tool_calls` that are in the content already
    hosted: list[tuple[str, int, str]] = []  # calls and results of the provider's own tools
    cut: set[int] = set()  # blocks that go
    added: list[Any] = []  # results that come
    substance: bool = True  # whether anything but results and blank text is in it
    group: int = 0
    gone: bool = False


def repair(payloads: list[Any]) -> list[Any]:
    """The messages as providers accept them: a new list, whose edited messages are copies.

    - A result without a call before it goes; so does a second result of the same call.
    - A result directly follows the message with its call; from elsewhere it is moved there.
    - A call without a result is answered by `INTERRUPTED`, in its own form. That holds for calls of the
      very last message too: a provider refuses them as soon as anything is said next. A `computer_call`,
      which only a picture could answer, goes instead.
    - The second call of an id gets a fresh one, and its result with it. Calls without ids (Gemini's) pair
      by name and stay without.
    - Blank texts go, and messages of which nothing is left. So does reasoning that leads to nothing:
      a Responses item with no output after it, Anthropic's thinking at the very end.
    - Tools that the provider runs pair within what the assistant says; an unfinished one is kept only at
      the end, where the provider may go on with it.

    What is acceptable already comes back equal, and what is not recognised comes back untouched.

    >>> repair([{"role": "tool", "tool_call_id": "c1", "content": "lost"}, {"role": "user", "content": "hi"}])
    [{'role': 'user', 'content': 'hi'}]
    """
    entries = [_examine(at, payload) for at, payload in enumerate(payloads)]
    _group(entries)
    _pair(entries)
    _cut_hosted(entries)
    _freshen(entries)
    after = _place_results(entries)
    mended: list[Any] = []
    for at, entry in enumerate(entries):
        if not entry.gone:
            mended += _rebuilt(entry)
        mended += after.get(at, ())
    return _without_idle_reasoning(mended)


def _examine(at: int, payload: Any) -> _Entry:
    shape = reading.recognise(payload)
    entry = _Entry(payload, shape)
    if not shape:
        return entry
    item = reading.item_kind(payload)
    if item:
        entry.role, entry.body = reading.role_of_item(item), payload
        slot = _Slot(
            at,
            "self",
            0,
            reading.first_text(payload, ("call_id", "id")),
            reading.first_text(payload, reading.TOOL_NAMES),
        )
        if item.endswith("_output"):
            entry.results.append(slot)
            entry.substance = False
        elif (
            item not in reading.HOSTED_CALLS
            and item.endswith("_call")
            and reading.first_text(payload, ("call_id",))
        ):
            entry.calls.append(slot)
        return entry
    entry.role, entry.body = reading.speaker_of(payload)
    for member in ("content", "parts"):
        blocks = entry.body.get(member)
        if isinstance(blocks, list | tuple) and (blocks or member == "parts"):
            entry.member, entry.blocks = member, blocks
            break
    for index, block in enumerate(entry.blocks):
        way, id, name = reading.pairing_of(block)
        if way == "call":
            if id or not _answered_by_id(block):  # else nothing could ever answer it
                entry.calls.append(_Slot(at, "block", index, id, name))
        elif way == "result":
            entry.results.append(_Slot(at, "block", index, id, name))
        elif way:
            entry.hosted.append((way, index, id))
        elif _is_blank(block):
            entry.cut.add(index)
    if entry.role == "tool" and not entry.results and not entry.hosted:
        id, name = (
            reading.first_text(entry.body, reading.RESULT_IDS),
            reading.first_text(entry.body, reading.TOOL_NAMES),
        )
        entry.results.append(_Slot(at, "self", 0, id, name))
        entry.cut.clear()
        entry.substance = False
        return entry
    made = {slot.id: slot for slot in entry.calls if slot.id}
    listed = entry.body.get("tool_calls")
    for index, given in enumerate(listed if isinstance(listed, list | tuple) else ()):
        call = reading.part_of_call(given)
        if call.kind != "call":
            continue
        id = reading.first_text(given, reading.CALL_IDS)
        if id in made:
            entry.repeated[index] = made[id]
        else:
            entry.calls.append(_Slot(at, "tool_calls", index, id, call.name))
    legacy = entry.body.get("function_call")
    if isinstance(legacy, dict):
        entry.calls.append(_Slot(at, "function_call", 0, "", reading.first_text(legacy, reading.TOOL_NAMES)))
    results = {slot.index for slot in entry.results}
    entry.substance = len(entry.cut) + len(results) < len(entry.blocks) or _says_beside(entry)
    return entry


def _is_blank(block: Any) -> bool:
    """Whether a block is a text without anything in it. Gemini's may carry a signature, and are pieces of
    one text, in which a space counts."""
    if isinstance(block, str):
        return reading.is_blank(block)
    if not isinstance(block, dict):
        return False
    if "type" not in block:
        return block.get("text") == "" and block.keys() <= {"text", "thought"}
    kind = block["type"]
    if not isinstance(kind, str) or kind not in reading.TEXTS or block.get("reasoning_content"):
        return False
    said = reading.text_of_block(block)
    return said is not None and reading.is_blank(said)


def _says_beside(entry: _Entry) -> bool:
    """Whether the message says anything outside its blocks."""
    body = {**entry.body, entry.member: []} if entry.member else entry.body
    parts = reading.parts_of_message("" if entry.role == "tool" else entry.role, body)
    return any(not (part.kind == "text" and reading.is_blank(part.text)) for part in parts)


def _group(entries: list[_Entry]) -> None:
    """Number the stretches after which results belong: a message each, but for the providers that take
    what the assistant says in a row as one. These are the ones whose calls are blocks or items; it is not
    asked whose they are, since a message may look like another's once something in it went."""
    group = 0
    before = False
    for entry in entries:
        joins = (
            entry.role == "assistant"
            and entry.member != "parts"
            and all(call.where in ("self", "block") for call in entry.calls)
            and not _is_langchain(entry)
        )
        group += not (joins and before)
        entry.group = group
        for slot in entry.calls:
            slot.group = group
        before = joins


def _is_langchain(entry: _Entry) -> bool:
    payload = entry.payload
    return entry.body is not payload or ("content" in payload and not isinstance(payload.get("role"), str))


def _pair(entries: list[_Entry]) -> None:
    """Give each result its call: the last one of its id before it; within a message, one after the other.
    A result without an id then takes, by name, a call that is left, if there is one without an id. A result
    answers calls of its own form only: items, Gemini's parts, or messages."""
    for by_name in (False, True):
        waiting: dict[tuple[str, str], list[_Slot]] = {}
        for entry in entries:
            form = _form(entry)
            for call in entry.calls:
                key = call.name if by_name else call.id
                if key:
                    queue = waiting.setdefault((form, key), [])
                    if queue and queue[0].group != call.group:
                        queue.clear()
                    queue.append(call)
            for result in entry.results:
                if bool(result.id) == by_name:
                    continue
                queue = waiting.get((form, result.name if by_name else result.id), [])
                unanswered = (call for call in queue if call.other is None)
                found = min(unanswered, key=lambda call: bool(call.id), default=None)
                if found is not None:
                    found.other, result.other = result, found


def _form(entry: _Entry) -> str:
    if entry.shape and reading.item_kind(entry.payload):
        return "item"
    return "parts" if entry.member == "parts" else "message"


def _cut_hosted(entries: list[_Entry]) -> None:
    """Cut what is left of the provider's own tools when one half is missing."""
    begun: set[str] = set()
    ended: set[str] = set()
    for entry in entries:
        for way, index, id in entry.hosted:
            if way == "hosted call":
                begun.add(id)
            elif id in begun or not id:
                ended.add(id)
            else:
                entry.cut.add(index)
    last = next((e.group for e in reversed(entries) if e.substance), 0)
    for entry in entries:
        if entry.group != last:
            unfinished = (i for way, i, id in entry.hosted if way == "hosted call" and id and id not in ended)
            entry.cut.update(unfinished)
        if entry.hosted and entry.cut:
            left = len(entry.blocks) - len(entry.cut) - len(entry.results)
            entry.substance = left > 0 or _says_beside(entry)


def _freshen(entries: list[_Entry]) -> None:
    """Find an id for each call whose own is taken by an earlier one."""
    every = [call for entry in entries for call in entry.calls]
    taken = {call.id for call in every}
    seen: set[str] = set()
    used: dict[str, int] = {}
    for call in every:
        if call.id and call.id in seen:
            stem = call.id[:36]  # OpenAI takes 40 characters
            number = used.get(stem, 1) + 1
            while (fresh := f"{stem}_{number}") in taken:
                number += 1
            used[stem] = number
            taken.add(fresh)
            call.fresh = fresh
        seen.add(call.id)


def _place_results(entries: list[_Entry]) -> dict[int, list[Any]]:
    """Decide where each result goes: it stays, joins its siblings, or is among what is returned, the new
    messages to put after the entry of that number."""
    after: dict[int, list[Any]] = {}
    at = 0
    while at < len(entries):
        group = entries[at].group
        end = at
        while end + 1 < len(entries) and entries[end + 1].group == group:
            end += 1
        made = [call for entry in entries[at : end + 1] for call in entry.calls]
        if made:
            after[end] = _answers(entries, made, end)
        at = end + 1
    return after


def _answers(entries: list[_Entry], made: list[_Slot], end: int) -> list[Any]:
    home = _home(entries, made[0].group, end + 1)
    whole: list[tuple[int, Any]] = []
    loose: list[tuple[str, str, Any]] = []  # the role, the member and the block of a message to be made
    for call in made:
        result = call.other
        if result is None:
            _answer_interrupted(entries[call.entry], call, whole, loose, len(entries))
        elif result.where == "self":
            whole.append((result.entry, _with_result_id(entries[result.entry], result)))
        elif not result.stays:
            carrier = entries[result.entry]
            role = "user" if carrier.role == "assistant" else str(carrier.payload.get("role") or "user")
            loose.append((role, carrier.member, _block_with_id(carrier.blocks[result.index], result)))
    new = [payload for _, payload in sorted(whole, key=lambda pair: pair[0])]
    if home is not None:
        home.added += [block for _, _, block in loose]
    else:
        for member in dict.fromkeys(member for _, member, _ in loose):
            role = next(role for role, which, _ in loose if which == member)
            new.append({"role": role, member: [block for _, which, block in loose if which == member]})
    return new


def _home(entries: list[_Entry], group: int, at: int) -> _Entry | None:
    """Mark the results that stand where they belong, in the messages right after the group (what will
    vanish does not count); returns the last of these messages, where further results can join."""
    home: _Entry | None = None
    for place in range(at, len(entries)):
        entry = entries[place]
        if not entry.shape:
            break
        if any(slot.where == "self" for slot in entry.results):
            continue
        mine = [slot for slot in entry.results if slot.other is not None and slot.other.group == group]
        if mine and entry.role != "assistant" and not entry.calls:
            for slot in mine:
                slot.stays = True
            home = entry
            if entry.substance or entry.shape == "gemini":  # which wants all results in one message
                break
        elif entry.substance:
            break
    return home


def _answer_interrupted(
    entry: _Entry, call: _Slot, whole: list[tuple[int, Any]], loose: list[tuple[str, str, Any]], last: int
) -> None:
    """Answer a call that nobody answered, in its own form; `last` sorts it behind the results there are."""
    id = call.fresh or call.id
    if call.where == "self":
        answer = _ITEM_ANSWERS.get(entry.payload["type"])
        if answer:
            whole.append((last, answer(id)))
        elif entry.payload["type"] == "computer_call":
            entry.gone = True
        return
    if not id and not call.name:
        return  # nothing could ever answer it
    if _is_langchain(entry):
        body = {"content": INTERRUPTED, "tool_call_id": id, "name": call.name, "status": "error"}
        nested = entry.body is not entry.payload
        whole.append((last, {"type": "tool", **({"data": body} if nested else body)}))
    elif call.where == "function_call":
        whole.append((last, {"role": "function", "name": call.name, "content": INTERRUPTED}))
    elif call.where == "tool_calls":
        pair = {"tool_call_id": id} if id else {"name": call.name}
        whole.append((last, {"role": "tool", **pair, "content": INTERRUPTED}))
    else:
        role, block = _answer_block(entry.blocks[call.index], id, call.name)
        loose.append((role, entry.member, block))


def _answered_by_id(call: dict[str, Any]) -> bool:
    """Whether a block is a call of Anthropic's, whose result names no tool."""
    return call.get("type") == "tool_use" and "tool_id" not in call


def _answer_block(made: dict[str, Any], id: str, name: str) -> tuple[str, dict[str, Any]]:
    """The block that answers a call block, and the role it is said in."""
    if "type" not in made:
        answer = {**({"id": id} if id else {}), "name": name, "response": {"error": INTERRUPTED}}
        return "user", {"functionResponse" if "functionCall" in made else "function_response": answer}
    if _answered_by_id(made):
        return "user", {"type": "tool_result", "tool_use_id": id, "content": INTERRUPTED, "is_error": True}
    if "toolCallId" in made:
        output = {"type": "error-text", "value": INTERRUPTED}
        return "tool", {"type": "tool-result", "toolCallId": id, "toolName": name, "output": output}
    return "user", {
        "type": "tool_result",
        "tool_id": id,
        "tool_name": name,
        "output": INTERRUPTED,
        "is_error": True,
    }


_ITEM_ANSWERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "function_call": lambda id: {"type": "function_call_output", "call_id": id, "output": INTERRUPTED},
    "custom_tool_call": lambda id: {"type": "custom_tool_call_output", "call_id": id, "output": INTERRUPTED},
    "local_shell_call": lambda id: {"type": "local_shell_call_output", "id": id, "output": INTERRUPTED},
    "shell_call": lambda id: {
        "type": "shell_call_output",
        "call_id": id,
        "output": [{"stdout": "", "stderr": INTERRUPTED, "outcome": {"type": "exit", "exit_code": 1}}],
    },
    "apply_patch_call": lambda id: {
        "type": "apply_patch_call_output",
        "call_id": id,
        "status": "failed",
        "output": INTERRUPTED,
    },
}


def _with_result_id(entry: _Entry, result: _Slot) -> Any:
    """A payload that is a result as a whole, with the id of its call, and in the role that answers it."""
    call = result.other
    if call is None:
        return entry.payload
    id = call.fresh or call.id
    role = entry.payload.get("role")
    if role == "function" and call.where == "tool_calls" and id:
        return {**entry.payload, "role": "tool", "tool_call_id": id}
    if role == "tool" and call.where == "function_call":
        body = {name: value for name, value in entry.payload.items() if name not in reading.RESULT_IDS}
        return {**body, "role": "function", "name": call.name}
    if not id or id == result.id:
        return entry.payload
    if reading.item_kind(entry.payload):
        return {**entry.payload, "call_id" if "call_id" in entry.payload else "id": id}
    member = next(
        (name for name in reading.RESULT_IDS if reading.first_text(entry.body, (name,))), "tool_call_id"
    )
    body = {**entry.body, member: id}
    return body if entry.body is entry.payload else {**entry.payload, "data": body}


def _block_with_id(block: dict[str, Any], slot: _Slot) -> dict[str, Any]:
    """A block that is a call or a result with the id it is to have, and a result without blank texts."""
    call = slot.other if slot.other is not None and not slot.fresh else slot
    is_result = reading.pairing_of(block)[0] == "result"
    id = (call.fresh or call.id) if is_result else slot.fresh
    if is_result and isinstance(block.get("content"), list | tuple):
        shown = [inner for inner in block["content"] if not _is_blank(inner)]
        if len(shown) < len(block["content"]):
            block = {**block, "content": shown}
    if not id or id == slot.id:
        return block
    if "type" not in block:  # Gemini: what has no id goes without
        spelled = next(
            names for way, names in reading.GEMINI_PAIRS if way == ("result" if is_result else "call")
        )
        member = next(name for name in spelled if isinstance(block.get(name), dict))
        return {**block, member: {**block[member], "id": id}} if slot.id else block
    names = reading.RESULT_IDS if is_result else reading.CALL_IDS
    default = "tool_use_id" if is_result else "id"
    return {**block, next((name for name in names if reading.first_text(block, (name,))), default): id}


def _rebuilt(entry: _Entry) -> list[Any]:
    """The payload with what was decided about it; nothing when nothing of it is left."""
    payload = entry.payload
    if not entry.shape:
        return [payload]
    if any(slot.where == "self" for slot in entry.results):
        return []
    if entry.calls and entry.calls[0].where == "self":
        fresh = entry.calls[0].fresh
        if not fresh:
            return [payload]
        # Its item id is as doubled as its call id was, and may be left out.
        return [{**{name: value for name, value in payload.items() if name != "id"}, "call_id": fresh}]
    if not entry.substance and not entry.added and not any(slot.stays for slot in entry.results):
        return []
    edits: dict[str, Any] = {}
    if entry.member:
        blocks = _kept_blocks(entry)
        if len(blocks) != len(entry.blocks) or any(
            a is not b for a, b in zip(blocks, entry.blocks, strict=True)
        ):
            # An empty list is refused where tool calls stand beside it; an empty text is not.
            edits[entry.member] = blocks or ("" if entry.member == "content" else [])
    fresh_ids = {slot.index: slot.fresh for slot in entry.calls if slot.where == "tool_calls" and slot.fresh}
    fresh_ids |= {index: slot.fresh for index, slot in entry.repeated.items() if slot.fresh}
    if fresh_ids:
        listed = list(entry.body["tool_calls"])
        for index, fresh in fresh_ids.items():
            member = next(name for name in reading.CALL_IDS if reading.first_text(listed[index], (name,)))
            listed[index] = {**listed[index], member: fresh}
        edits["tool_calls"] = listed
    if not edits:
        return [payload]
    body = {**entry.body, **edits}
    return [body if entry.body is payload else {**payload, "data": body}]


def _kept_blocks(entry: _Entry) -> list[Any]:
    slots = {slot.index: slot for slot in (*entry.calls, *entry.results) if slot.where == "block"}
    leaving = {slot.index for slot in entry.results if not slot.stays} | entry.cut
    kept: list[Any] = []
    behind = 0  # the place after the last result
    for index, block in enumerate(entry.blocks):
        if index in leaving:
            continue
        if index in slots:
            block = _block_with_id(block, slots[index])
        kept.append(block)
        if index in slots and slots[index].stays:
            behind = len(kept)
    kept[behind:behind] = entry.added
    if entry.role != "assistant" and any(reading.is_dict(block) and "tool_use_id" in block for block in kept):
        kept.sort(key=lambda block: reading.pairing_of(block)[0] != "result")  # results come first there
    return kept


def _without_idle_reasoning(payloads: list[Any]) -> list[Any]:
    """Without the reasoning that providers refuse because nothing comes of it."""
    kept: list[Any] = []
    follows = ""  # who speaks next
    for payload in reversed(payloads):
        shape = reading.recognise(payload)
        if (
            shape == "openai-responses"
            and reading.item_kind(payload) == "reasoning"
            and follows != "assistant"
        ):
            continue
        if shape and not kept and reading.speaker_of(payload)[0] == "assistant":
            payload = _without_last_thoughts(payload)
            if payload is None:
                continue
        kept.append(payload)
        follows = reading.read(payload).role if shape else ""
    kept.reverse()
    return kept


def _without_last_thoughts(payload: dict[str, Any]) -> dict[str, Any] | None:
    blocks = payload.get("content")
    if not isinstance(blocks, list | tuple):
        return payload
    end = len(blocks)
    while (
        end
        and reading.is_dict(blocks[end - 1])
        and blocks[end - 1].get("type") in ("thinking", "redacted_thinking")
    ):
        end -= 1
    if end == len(blocks):
        return payload
    return {**payload, "content": list(blocks[:end])} if end else None
