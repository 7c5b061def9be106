"""E5 and E6: what is known about a session beside what was said, and what it cost."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import InvalidPayload
from hansard.testing.chat import assistant, count, state, user, users
from hansard.testing.world import World
from hansard.views.usage import Usage

# -- E5


@pytest.mark.rule("E5")
def test_an_update_replaces_whole_values_and_leaves_what_it_does_not_name(world: World) -> None:
    with world.store().create(
        "s", agent="coder", model="gpt-5", meta={"a": {"x": 1, "y": 2}, "b": 1}
    ) as session:
        session.append(user("Hello"))
        session.update(model="gpt-6", vendor="openai", meta={"a": {"z": 3}, "c": [1]})
        session.update(endpoint="https://example.com")
        for head in (session.head, world.other().head("s")):
            assert (head.agent, head.model, head.vendor) == ("coder", "gpt-6", "openai")
            assert head.endpoint == "https://example.com"
            assert head.meta == {"a": {"z": 3}, "b": 1, "c": [1]}
    head = world.reopened().head("s")
    assert (head.model, head.meta) == ("gpt-6", {"a": {"z": 3}, "b": 1, "c": [1]})


@pytest.mark.rule("E5")
def test_null_is_a_value_and_not_the_absence_of_one(world: World) -> None:
    with world.store().create("s", meta={"a": 1, "b": None}) as session:
        session.append(user("Hello"))
        assert session.head.meta == {"a": 1, "b": None}
        session.update(meta={"a": None, "c": None})
        assert world.other().head("s").meta == {"a": None, "b": None, "c": None}
        session.update(unset=["meta.a"])
        assert world.other().head("s").meta == {"b": None, "c": None}


@pytest.mark.rule("E5")
@pytest.mark.parametrize("value", [True, False, None, 0, "", [], {}], ids=repr)
def test_a_preference_survives_updates_that_do_not_mention_it(world: World, value: Any) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        assert "wanted" not in session.head.meta
        session.update(meta={"wanted": value})
        session.update(meta={"other": 1})
        session.update(model="x", unset="meta.other")
        session.rename("Title")
        session.label("a")
        assert repr(world.other().head("s").meta) == repr({"wanted": value})


@pytest.mark.rule("E5")
def test_fields_and_keys_can_be_unset(world: World) -> None:
    with world.store().create(
        "s", agent="coder", model="gpt-5", labels=["x"], meta={"a": 1, "b.c": 2}
    ) as session:
        session.append(user("Hello"))
        session.update(unset=["model", "meta.b.c"])
        assert (session.head.model, session.head.meta, session.head.agent) == ("", {"a": 1}, "coder")
        session.update(unset="labels")
        session.update(unset=["meta"])
        session.update(unset=["meta.nobody"])
        head = world.other().head("s")
        assert (head.labels, head.meta, head.agent) == ([], {}, "coder")


@pytest.mark.rule("E5")
def test_what_is_set_and_unset_in_one_call_is_one_record(world: World) -> None:
    with world.store().create("s", meta={"a": 1, "b": 1}) as session:
        session.append(user("Hello"))
        before = count(session)
        session.update(model="x", labels=["l"], pinned=True, meta={"c": 1}, unset=["meta.a"])
        assert count(session) == before + 1
        head = session.head
        assert (head.model, head.labels, head.pinned, head.meta) == ("x", ["l"], True, {"b": 1, "c": 1})


@pytest.mark.rule("E5")
def test_an_update_of_nothing_writes_nothing(world: World) -> None:
    with world.store().create("s", labels=["x"]) as session:
        session.append(user("Hello"))
        before = state(session)
        assert session.update() is None
        assert session.update(unset=[]) is None
        assert session.label("x") is None
        assert session.label(remove="y") is None
        assert state(session) == before


@pytest.mark.rule("E5", "W4")
@pytest.mark.parametrize("name", ["nothing", "id", "uid", "seq", "metax", "messages", "", 7], ids=repr)
def test_a_field_that_does_not_exist_cannot_be_unset(world: World, name: Any) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        before = state(session)
        with pytest.raises(ValueError):
            session.update(model="x", unset=[name])
        assert state(session) == before


@pytest.mark.rule("E5")
@pytest.mark.parametrize("how", ["rename", "update", "create"])
def test_a_chosen_title_stays(world: World, how: str) -> None:
    store = world.store()
    with store.create("s", title="Chosen" if how == "create" else None) as session:
        if how == "rename":
            session.append(user("What I said first"))
            assert session.head.title == "What I said first"
            session.rename("Chosen")
        elif how == "update":
            session.update(title="Chosen")
        session.append(user("Later"))
        session.set_history(users("Something else"))
        session.update(model="x", meta={"title": "No"})
        session.clear()
        session.rewind(1)
        session.append(user("Even later"))
        assert session.head.title == store.list()[0].title == world.other().head("s").title == "Chosen"
    store = world.reopened()
    store.append("s", user("After years"))
    assert store.head("s").title == "Chosen"


@pytest.mark.rule("E5")
@pytest.mark.parametrize("how", ["null", "unset"])
def test_a_title_that_is_taken_back_is_found_again_in_what_was_said(world: World, how: str) -> None:
    with world.store().create("s", title="Chosen") as session:
        session.append(user("What I said first"))
        session.append(user("Later"))
        session.update(**({"title": None} if how == "null" else {"unset": "title"}))
        assert world.other().head("s").title == "What I said first"


@pytest.mark.rule("E5")
def test_a_title_may_be_any_text(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        for title in ("", "  two  spaces ", "line\nbreak", "\x00", "👩‍💻" * 300, '"<b>&'):
            session.rename(title)
            session.append(user("And?"))
            assert session.head.title == world.other().head("s").title == title


@pytest.mark.rule("E5")
def test_a_status_other_than_active_ends_a_session(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        assert (session.head.status, session.head.ended_at) == ("active", None)
        session.update(status="done")
        head = world.other().head("s")
        assert head.status == "done"
        assert head.ended_at == next(session.records(reverse=True)).at
        session.update(unset="status")
        assert (session.head.status, session.head.ended_at) == ("active", None)


@pytest.mark.rule("E5")
def test_labels_are_a_set_and_pins_go_on_and_off(world: World) -> None:
    with world.store().create("s", labels=["b", "a", "b"]) as session:
        session.append(user("Hello"))
        assert session.head.labels == ["a", "b"]
        session.label("c", "a", remove=["b", "x"])
        assert session.head.labels == ["a", "c"]
        session.update(labels=["z", "y", "z"])
        assert world.other().head("s").labels == ["y", "z"]
        session.pin()
        assert world.other().head("s").pinned is True
        session.pin(False)
        assert world.other().head("s").pinned is False


@pytest.mark.rule("E5", "W11")
def test_updates_of_different_fields_by_several_handles_are_all_there(world: World) -> None:
    with world.store().create("s", model="a") as session:
        session.append(user("Hello"))
        with world.other().open("s", exclusive=False) as shared:
            shared.update(meta={"theirs": 1})
            session.update(meta={"mine": 1})
            shared.label("theirs")
            session.label("mine")
            shared.update(model="b")
            session.update(vendor="c")
        head = world.store().head("s")
        assert head.meta == {"theirs": 1, "mine": 1}
        assert head.labels == ["mine", "theirs"]
        assert (head.model, head.vendor) == ("b", "c")


# -- E6

NAMES: dict[str, tuple[Any, Usage]] = {
    "ours": (
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cost": 0.5, "calls": 2},
        Usage(input_tokens=10, output_tokens=5, total_tokens=15, cost=0.5, calls=2),
    ),
    "OpenAI's chat": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        Usage(
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=4,
            reasoning_tokens=3,
            total_tokens=15,
            calls=1,
        ),
    ),
    "OpenAI's responses": (
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 3},
        },
        Usage(
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=4,
            reasoning_tokens=3,
            total_tokens=15,
            calls=1,
        ),
    ),
    "Anthropic's": (
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
        },
        Usage(
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=100,
            cache_write_tokens=20,
            total_tokens=135,
            calls=1,
        ),
    ),
    "OpenTelemetry's": (
        {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5},
        Usage(input_tokens=10, output_tokens=5, total_tokens=15, calls=1),
    ),
    "only a cost": ({"cost_usd": 0.25}, Usage(cost=0.25, calls=1)),
    "a breakdown": (
        {"input_tokens": 10, "breakdown": {"budget": 100, "used": 10, "system": 4, "message": 6}},
        Usage(
            input_tokens=10,
            total_tokens=10,
            calls=1,
            breakdown={"budget": 100, "used": 10, "system": 4, "message": 6},
        ),
    ),
}
"""Usage in several people's names, and what it means."""


@pytest.mark.rule("E6")
@pytest.mark.parametrize("name", NAMES)
def test_usage_is_understood_in_many_names_and_kept_verbatim(world: World, name: str) -> None:
    raw, meant = NAMES[name]
    with world.store().create("s") as session:
        session.append(user("Hello"))
        record = session.append(assistant("Hello"), usage={**raw, "unknown": {"x": [1]}})
        assert record.usage == {**raw, "unknown": {"x": [1]}}
        assert session.usage() == session.head.usage == meant
        assert session.add_usage(raw).data == raw
    view = world.reopened().read("s")
    assert [r.usage for r in view.records(kinds="message")] == [None, {**raw, "unknown": {"x": [1]}}]
    assert [r.data for r in view.records(kinds="usage")] == [raw]
    assert view.usage().total_tokens == 2 * meant.total_tokens
    assert view.usage().calls == 2 * meant.calls
    assert view.usage().breakdown == {part: 2 * n for part, n in meant.breakdown.items()}
    assert view.usage().cost == (None if meant.cost is None else 2 * meant.cost)


@pytest.mark.rule("E6", "W4")
@pytest.mark.parametrize("bad", [{}, {"tokens": 7}, {"x": {"input_tokens": 1}}, [], 7, "7", None], ids=repr)
def test_usage_of_which_nothing_is_known_is_refused(world: World, bad: Any) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        before = state(session)
        with pytest.raises(InvalidPayload):
            session.add_usage(bad)
        if bad is not None:
            with pytest.raises(InvalidPayload):
                session.append(assistant("b"), usage=bad)
            with pytest.raises(InvalidPayload):
                session.extend([assistant("b"), user("c")], usages=[bad, None])
        assert state(session) == before


@pytest.mark.rule("E6")
def test_totals_are_the_sum_of_what_was_recorded(world: World) -> None:
    with world.store().create("s", model="gpt-5") as session:
        session.append(user("a"))
        session.extend(
            [assistant("b"), user("c"), assistant("d")], usages=[{"input_tokens": 1}, None, {"cost": 1}]
        )
        session.append(
            assistant("e"), model="claude", usage={"input_tokens": 2, "output_tokens": 3}, turn="t1"
        )
        session.add_usage({"input_tokens": 10, "calls": 4}, model="claude")
        session.add_usage({"output_tokens": 20})
        session.clear()
        told = session.usage()
    for view in (world.reopened().read("s"), world.other().read("s")):
        usage = view.usage()
        assert usage == told == view.head.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (13, 23, 36)
        assert (usage.cost, usage.calls) == (1.0, 8)
        assert {name: used.total_tokens for name, used in usage.models.items()} == {"gpt-5": 21, "claude": 15}
        lines = view.usage(by="model")
        assert {line.model: line.usage.total_tokens for line in lines} == {"gpt-5": 21, "claude": 15}
        lines = view.usage(by="record")
        assert [line.seq for line in lines] == [2, 4, 5, 6, 7]
        assert sum(line.usage.total_tokens for line in lines) == 36
        lines = view.usage(by="turn")
        assert {line.turn: line.usage.total_tokens for line in lines} == {None: 31, "t1": 5}
        with pytest.raises(ValueError):
            view.usage(by="day")


@pytest.mark.rule("E6")
def test_a_session_that_cost_nothing_yet_has_no_cost(world: World) -> None:
    with world.store().create("s") as session:
        assert session.usage() == Usage()
        session.append(user("a"))
        assert session.usage().cost is None
        assert session.usage(by="record") == []
