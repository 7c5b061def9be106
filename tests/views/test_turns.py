"""Turns as a function of the records: who opens one, what belongs to it, which result answers which call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard import NewerFormat, Record, TurnItem, TurnView
from hansard.views import turns
from hansard.views.turns import fold, items, newest

AT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def record(data: Any, seq: int, kind: str = "message", **fields: Any) -> Record:
    return Record(kind=kind, data=data, at=AT + timedelta(seconds=seq), seq=seq, **fields)


def told(item: TurnItem) -> Any:
    """An item in short: its kind, or its text where that says more."""
    said = f"{item.kind}:{item.text}" if item.kind != "text" else item.text
    return (said, [told(one) for one in item.items]) if item.items else said


def outline(found: Iterator[TurnView] | list[TurnView]) -> list[Any]:
    return [(t.number, [told(i) for i in t.request], [told(i) for i in t.response]) for t in found]


# -- what opens a turn ------------------------------------------------------------------------------


def test_user_input_opens_a_turn_and_the_answer_follows() -> None:
    said = [user("one"), assistant("1"), user("two"), assistant("2"), assistant("2b")]
    assert outline(fold(said)) == [(1, ["one"], ["1"]), (2, ["two"], ["2", "2b"])]


def test_what_comes_before_the_first_input_is_a_turn_without_a_request() -> None:
    said = [{"role": "system", "content": "Be brief"}, assistant("Hello!"), user("one")]
    assert outline(fold(said)) == [(0, [], ["Be brief", "Hello!"]), (1, ["one"], [])]


def test_each_of_several_inputs_in_a_row_is_a_turn() -> None:
    assert outline(fold([user("continue"), user("continue"), assistant("1")])) == [
        (1, ["continue"], []),
        (2, ["continue"], ["1"]),
    ]


def test_what_a_developer_says_meanwhile_belongs_to_the_turn() -> None:
    said = [user("one"), {"role": "developer", "content": "Hurry"}, assistant("1")]
    assert outline(fold(said)) == [(1, ["one"], ["Hurry", "1"])]


@pytest.mark.parametrize("blank", [user(""), user(" \n"), {"role": "user", "content": []}])
def test_a_message_in_which_a_user_says_nothing_opens_none_and_is_there(blank: Any) -> None:
    assert outline(fold([user("one"), blank, assistant("1")])) == [(1, ["one"], ["", "1"])]


@pytest.mark.parametrize("payload", [{"hello": 1}, [1], 7, None, ""])
def test_what_nobody_recognises_may_be_input_and_is_kept_as_it_is(payload: Any) -> None:
    [turn] = fold([payload])
    [item] = turn.request
    assert (turn.number, item.kind, item.text, item.data) == (1, "other", "", payload)


def test_a_result_with_words_of_the_user_opens_a_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "ok"}
    call = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    said = [user("one"), {"role": "assistant", "content": [call]}]
    said += [{"role": "user", "content": [result, {"type": "text", "text": "stop"}]}]
    assert outline(fold(said)) == [(1, ["one"], ["call:{}"]), (2, ["result:ok", "stop"], [])]
    assert list(fold(said))[1].request[0].name == "ls"


def test_an_image_is_input_too() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    [turn] = fold([{"role": "user", "content": [image]}])
    assert (turn.request[0].kind, turn.request[0].media) == ("image", "https://example.com/a.png")


# -- calls and results ------------------------------------------------------------------------------


def openai(id: str, name: str = "ls") -> Any:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def answer(id: str, text: str) -> Any:
    return {"role": "tool", "tool_call_id": id, "content": text}


def gemini(*names: str) -> Any:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in names]}


def responded(*given: tuple[str, str]) -> Any:
    parts = [{"functionResponse": {"name": name, "response": {"result": text}}} for name, text in given]
    return {"role": "user", "parts": parts}


SHAPES = {
    "openai": [openai("c"), answer("c", "out")],
    "responses": [
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "out"},
    ],
    "anthropic": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "out"}]},
    ],
    "gemini": [gemini("ls"), responded(("ls", "out"))],
    "plain": [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "tool_id": "c", "tool_name": "ls", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_id": "c", "output": "out"}]},
    ],
    "langchain": [
        {"type": "ai", "data": {"content": "", "tool_calls": [{"id": "c", "name": "ls", "args": {}}]}},
        {"type": "tool", "data": {"content": "out", "tool_call_id": "c"}},
    ],
    "no id at all": [
        {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": "out"},
    ],
}


@pytest.mark.parametrize("said", SHAPES.values(), ids=SHAPES)
def test_a_call_has_its_result_whoever_made_the_message(said: list[Any]) -> None:
    [turn] = fold([user("go"), *said])
    [call] = turn.response
    [result] = call.items
    assert (call.kind, call.name, call.text, call.seq) == ("call", "ls", "{}", 1)
    assert (result.kind, result.name, result.text, result.seq) == ("result", "ls", "out", 2)


def test_a_tool_of_the_provider_is_called_and_answered_in_one_message() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [{"type": "text", "text": "found"}],
        },
        {"type": "text", "text": "There."},
    ]
    item = {"type": "web_search_call", "id": "w", "action": {"query": "x"}, "results": "found"}
    code = [
        {"executableCode": {"code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    ]
    said = [user("go"), {"role": "assistant", "content": blocks}, item, {"role": "model", "parts": code}]
    assert outline(fold(said))[0][2] == [
        ("call:{}", ["result:found"]),
        "There.",
        ('call:{"query":"x"}', ["result:found"]),
        ("call:1", ["result:1"]),
    ]


def test_results_come_to_their_calls_in_whatever_order() -> None:
    said = [
        user("go"),
        openai("a", "x"),
        openai("b", "y"),
        answer("b", "B"),
        assistant("hm"),
        answer("a", "A"),
    ]
    assert outline(fold(said))[0][2] == [("call:{}", ["result:A"]), ("call:{}", ["result:B"]), "hm"]


def test_calls_known_by_their_names_are_answered_in_order() -> None:
    said = [
        user("go"),
        gemini("ls", "ls"),
        responded(("ls", "1"), ("ls", "2")),
        gemini("ls"),
        responded(("ls", "3")),
    ]
    assert outline(fold(said))[0][2] == [("call:{}", [f"result:{n}"]) for n in (1, 2, 3)]


def test_an_id_that_comes_again_means_the_call_of_that_time() -> None:
    said = [user("go"), openai("0"), openai("x"), answer("x", "X"), openai("0"), answer("0", "second")]
    assert outline(fold(said))[0][2] == ["call:{}", ("call:{}", ["result:X"]), ("call:{}", ["result:second"])]


def test_a_call_may_have_several_results() -> None:
    said = [user("go"), openai("a"), answer("a", "begun"), assistant("wait"), answer("a", "done")]
    assert outline(fold(said))[0][2] == [("call:{}", ["result:begun", "result:done"]), "wait"]


def test_a_call_that_nothing_answers_stands_alone_and_so_does_a_result_of_no_call() -> None:
    said = [user("go"), openai("a"), answer("lost", "x")]
    assert outline(fold(said)) == [(1, ["go"], ["call:{}", "result:x"])]


def test_a_result_of_a_call_of_an_earlier_turn_stands_in_its_own_and_has_its_name() -> None:
    first, second = fold([user("go"), openai("a", "read"), user("wait"), answer("a", "x"), assistant("ok")])
    assert [told(item) for item in first.response] == ["call:{}"]
    assert [told(item) for item in second.response] == ["result:x", "ok"]
    assert second.response[0].name == "read"


def test_the_images_of_a_result_are_its_items_and_a_failure_is_marked() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    result = {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [image, image, pdf]}
    [item] = items({"role": "user", "content": [result]})
    assert (item.kind, item.error) == ("result", True)
    assert [(one.kind, one.mime) for one in item.items] == [
        ("image", "image/png"),
        ("image", "image/png"),
        ("file", "application/pdf"),
    ]


def test_names_of_calls_that_nothing_answers_are_not_remembered_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(turns, "_WAITING", 2)
    said = [part for n in range(3) for part in (user("go"), openai(f"c{n}", f"tool{n}"))]
    last = list(fold([*said, user("late"), *(answer(f"c{n}", "") for n in range(3))]))[-1]
    assert [item.name for item in last.response] == ["", "tool1", "tool2"]


# -- what else there is -----------------------------------------------------------------------------


def test_a_change_of_the_history_stands_where_it_was_made() -> None:
    parts = [
        {"message": user("In short")},
        {"message": openai("a", "x")},
        {"message": answer("a", "A")},
        [1, 1],
    ]
    change = record({"op": "checkpoint", "parts": parts, "summary": "All done"}, 3, "history")
    first, second = fold([record(user("one"), 1), record(assistant("1"), 2), change, record(user("two"), 4)])
    item = first.response[-1]
    assert (item.kind, item.name, item.text, item.seq) == ("change", "checkpoint", "All done", 3)
    assert [told(one) for one in item.items] == ["In short", ("call:{}", ["result:A"])]
    assert [(one.seq, one.inner) for one in item.items] == [(3, 0), (3, 1)]
    assert (first.first, first.last, second.first) == (1, 3, 4)


@pytest.mark.parametrize(
    "data", [None, 7, {}, {"op": 7, "parts": 7, "summary": 7}, {"parts": [7, {"message": 7}]}]
)
def test_a_change_that_nobody_understands_is_one_too(data: Any) -> None:
    found = [item for turn in fold([record(data, 3, "history")]) for item in turn.items]
    assert [item.kind for item in found] == (["change"] if isinstance(data, dict) else [])


def test_a_turn_says_what_it_cost_when_it_was_and_who_answered() -> None:
    used = {"input_tokens": 10, "output_tokens": 2, "cost": 0.1}
    said = [
        record(user("one"), 1),
        record(assistant("1"), 2, usage=used, model="gpt-5"),
        record(assistant("1b"), 4, usage=used, model="mini"),
        record(used, 5, "usage", model="judge"),
        record(user("two"), 6),
    ]
    first, second = fold(said)
    assert (first.began, first.ended) == (AT + timedelta(seconds=1), AT + timedelta(seconds=4))
    assert (first.first, first.last) == (1, 5)
    assert first.models == ("gpt-5", "mini")
    assert (first.usage.input_tokens, first.usage.calls, first.usage.cost) == (30, 3, 0.3)
    assert set(first.usage.models) == {"gpt-5", "mini", "judge"}
    assert (second.usage.calls, second.models) == (0, ())


def test_usage_before_everything_is_counted_too() -> None:
    [turn] = fold([record({"input_tokens": 3}, 1, "usage")])
    assert (turn.number, turn.items, turn.usage.input_tokens) == (0, (), 3)


def test_the_model_that_a_message_names_is_known_without_a_record() -> None:
    [turn] = fold([user("Hi"), {"role": "assistant", "content": "Hi", "model": "gpt-5"}])
    assert turn.models == ("gpt-5",)


def test_events_output_and_metadata_are_in_no_turn() -> None:
    others = [
        record({"x": 1}, n, kind) for n, kind in enumerate(["session", "meta", "event", "output", "acme.x"])
    ]
    assert list(fold([*others, record(None, 9, "future")])) == []


def test_a_record_that_must_be_understood_is_not_passed_over() -> None:
    with pytest.raises(NewerFormat):
        list(fold([record(None, 1, "!redacted")]))


def test_a_turn_without_end_comes_in_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr(turns, "LONGEST", 4)
    steps = [part for n in range(4) for part in (openai(f"c{n}"), answer(f"c{n}", str(n)))]
    found = list(fold([user("go"), *steps]))
    assert [turn.number for turn in found] == [1, 1, 1]
    assert [told(item) for turn in found for item in turn.request] == ["go"]
    seen = [item for turn in found for item in turn.response]
    assert sorted({one.seq for item in seen for one in (item, *item.items)}) == list(range(1, 9))


# -- for every session ------------------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "c"])
payloads = (
    st.sampled_from(["", " ", "hi"]).map(user)
    | st.just(assistant("ok"))
    | ids.map(openai)
    | st.builds(answer, ids, st.sampled_from(["", "x"]))
    | st.lists(ids, min_size=1, max_size=3).map(lambda names: gemini(*names))
    | st.lists(st.tuples(ids, st.just("x")), min_size=1, max_size=3).map(lambda given: responded(*given))
    | st.sampled_from([part for said in SHAPES.values() for part in said])
    | st.sampled_from([{"role": "system", "content": "s"}, {"weird": 1}, None, "bare", {"role": "user"}])
)
kinds = st.one_of(
    payloads.map(lambda payload: ("message", payload)),
    payloads.map(lambda payload: ("message", payload)),
    payloads.map(lambda payload: ("history", {"op": "set", "parts": [{"message": payload}, [0, 1]]})),
    st.just(("usage", {"input_tokens": 1})),
    st.just(("event", {"type": "x"})),
)
sessions = st.lists(kinds, max_size=30).map(
    lambda said: [record(data, seq, kind, usage={"input_tokens": 1}) for seq, (kind, data) in enumerate(said)]
)


def everything(turn: TurnView) -> list[TurnItem]:
    return [one for item in turn.items for one in (item, *(() if item.kind == "change" else item.items))]


@given(sessions)
@settings(max_examples=300, deadline=None)
def test_every_message_is_in_just_one_turn_and_none_is_lost(said: list[Record]) -> None:
    found = list(fold(said))
    places = [seq for turn in found for seq in {item.seq for item in everything(turn)}]
    assert sorted(places) == [r.seq for r in said if r.kind in ("message", "history")]
    assert all(turn.first <= item.seq <= turn.last for turn in found for item in everything(turn))
    assert all(one.last < other.first for one, other in pairwise(found))
    for turn in found:  # in the order in which it was said, results at their calls
        seqs = [item.seq for item in turn.items]
        assert seqs == sorted(seqs)


@given(sessions)
@settings(max_examples=200, deadline=None)
def test_numbers_go_on_one_by_one_and_all_that_was_paid_is_in_some_turn(said: list[Record]) -> None:
    found = list(fold(said))
    numbers = [turn.number for turn in found]
    assert numbers in (list(range(len(found))), list(range(1, len(found) + 1)))
    assert all(bool(turn.request) == (turn.number != 0) for turn in found)
    paid = sum(r.kind in ("message", "usage") for r in said)
    assert sum(turn.usage.input_tokens for turn in found) == paid


@given(sessions)
@settings(max_examples=200, deadline=None)
def test_a_turn_comes_out_as_soon_as_the_next_one_begins(said: list[Record]) -> None:
    taken = 0

    def passing() -> Iterator[Record]:
        nonlocal taken
        for one in said:
            taken += 1
            yield one

    stream = fold(passing())
    for n, turn in enumerate(whole := list(fold(said))):
        assert next(stream) == turn
        if n + 1 < len(whole):
            assert taken == whole[n + 1].first + 1


@given(sessions, st.integers(0, 8))
@settings(max_examples=300, deadline=None)
def test_the_newest_turns_are_the_last_of_all(said: list[Record], limit: int) -> None:
    whole = list(fold(said))
    wanted = whole[len(whole) - limit :] if limit < len(whole) else whole
    backwards = (r for r in reversed(said) if r.kind in turns.KINDS)
    found = list(newest(backwards, limit))
    if found and found[0].number is None:
        assert [(t.first, t.last, t.usage) for t in found] == [(t.first, t.last, t.usage) for t in wanted]
        assert next(backwards, None) is not None or len(whole) > limit
    else:
        assert found == wanted


@given(st.lists(payloads, max_size=20))
@settings(max_examples=200, deadline=None)
def test_messages_that_were_never_saved_read_like_those_that_were(said: list[Any]) -> None:
    saved = [record(payload, seq) for seq, payload in enumerate(said)]
    assert outline(fold(said)) == outline(fold(saved))
    assert [turn.first for turn in fold(said)] == [turn.first for turn in fold(saved)]


def test_the_newest_of_a_long_session_need_not_all_of_it() -> None:
    def endless() -> Iterator[Record]:
        seq = 10**6
        while True:
            yield record(assistant("ok") if seq % 2 else user(f"{seq}"), seq)
            seq -= 1

    assert [turn.request[0].text for turn in newest(endless(), 2)] == ["999998", "1000000"]
