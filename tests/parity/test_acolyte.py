"""Acolyte's sessions, row by row of docs/parity.md."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.engines import Engine
from hansard.errors import (
    AmbiguousSession,
    InvalidId,
    InvalidPayload,
    NoSessions,
    SessionBusy,
    SessionNotFound,
)
from hansard.testing.chat import assistant, texts, user, users
from tests.parity.conftest import Ask

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
NO_IDS = ["", "  ", "\0", "x" * 513]


def begun(store: hansard.Store, *ids: str) -> None:
    """Sessions in which somebody said hello, an hour apart."""
    for place, id in enumerate(ids):
        with store.create(id, activate=False) as session:
            session.append(user(f"Hello {id}"), time=NOON + timedelta(hours=place))


# -- the model


def test_each_session_has_an_id_of_its_own(store: hansard.Store, elsewhere: Ask) -> None:
    ids = []
    for _ in range(20):
        with store.create() as session:
            session.append(user("Hello"))
            ids.append(session.id)
    assert all(re.fullmatch("sess_[0-9a-z]{16}", id) for id in ids)
    assert sorted(elsewhere("[h.id for h in store.list()]")) == sorted(set(ids))


def test_a_session_has_model_title_and_messages(store: hansard.Store, elsewhere: Ask) -> None:
    said = [user("Build a login page"), assistant("Done.")]
    with store.create("sess_0h9sjktc", model="gpt-5-mini", workspace="") as session:
        session.extend(said)
    found = elsewhere(
        "(lambda v: [v.id, v.head.model, v.head.title, v.history()])(store.read('sess_0h9sjktc'))"
    )
    assert found == ["sess_0h9sjktc", "gpt-5-mini", "Build a login page", said]


def test_one_at_a_time_works_in_a_session(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_a", "sess_b")
    with store.open("sess_a") as session:
        with pytest.raises(SessionBusy):
            store.open("sess_a")
        assert elsewhere("refused(store.open, 'sess_a')") == "SessionBusy"
        assert elsewhere("refused(store.open, 'sess_b')") is None
        session.append(user("still mine"))
    assert elsewhere("refused(store.open, 'sess_a')") is None


def test_a_session_outlives_its_requests(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("sess_a") as session:
        session.append(user("first request"))
    assert texts(elsewhere("store.read('sess_a').history()")) == ["first request"]
    elsewhere("store.append('sess_a', {'role': 'user', 'content': 'second request'})")
    with store.open("sess_a") as session:
        assert texts(session.history()) == ["first request", "second request"]


def test_messages_are_appended_and_persisted_at_checkpoints(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("sess_a") as session:
        session.append(user("on disk before the model is called"))
        session.append(assistant("a part of the answer"), durable=False)
        session.append(assistant("and the rest"), durable=False)
        session.save()  # the checkpoint: what a power cut must not take
        assert len(elsewhere("store.read('sess_a').history()")) == 3
        session.save()
        session.extend([])
        assert session.seq == 3


def test_usage_is_tracked_per_response_with_its_breakdown(store: hansard.Store, elsewhere: Ask) -> None:
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "inputBudgetTokens": 100}
    parts = {"systemTokens": 4, "toolTokens": 3, "skillTokens": 0, "memoryTokens": 1, "messageTokens": 2}
    kept = {
        "usage": usage,
        "promptBreakdown": {"budgetTokens": 100, "usedTokens": 10, **parts},
        "modelCalls": 2,
    }
    with store.create("sess_a", model="gpt-5-mini") as session:
        session.append(user("Hello"))
        session.append(assistant("Hi!"), usage=kept)
        session.append(assistant("And?"), usage={"inputTokens": 0, "outputTokens": 0})
        session.append(assistant("More"), usage={"inputTokens": 1, "outputTokens": -1})  # counts as none
        with pytest.raises(InvalidPayload):
            session.append(assistant("lost"), usage={})
    found = elsewhere(
        "(lambda v: [v.usage(), v.usage(by='record'), [r.usage for r in v.records(kinds='message')]])"
        "(store.read('sess_a'))"
    )
    total, lines, raw = found
    assert (total["input_tokens"], total["output_tokens"], total["total_tokens"]) == (11, 5, 16)
    assert total["calls"] == 4
    told = {"budget": 100, "used": 10, "system": 4, "tool": 3, "memory": 1, "message": 2}
    assert {name: count for name, count in total["breakdown"].items() if count} == told
    assert [(line["seq"], line["usage"].get("total_tokens", 0)) for line in lines] == [
        (2, 15),
        (3, 0),
        (4, 1),
    ]
    assert raw[1] == kept


# -- the life of a session


def test_create_begins_with_empty_messages(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create() as session:
        assert session.history() == []
        assert re.fullmatch("sess_[0-9a-z]{16}", session.id)
        assert elsewhere("store.list(empty=True)") == []
    with store.create(eager=True) as session:
        assert elsewhere("store.read(id).history()", id=session.id) == []


def test_resume_by_the_beginning_of_an_id(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_abcd", "sess_abce", "sess_abc", "sess_x")
    for text, id in {"sess_x": "sess_x", "x": "sess_x", "abcd": "sess_abcd", "sess_abc": "sess_abc"}.items():
        with store.resume(text) as session:
            assert session.id == id
    assert elsewhere("store.resume('abce').id") == "sess_abce"
    with pytest.raises(AmbiguousSession) as several:
        store.resume("sess_ab")
    assert several.value.total == 3
    assert ("sess_abcd", "Hello sess_abcd") in several.value.candidates
    with pytest.raises(SessionNotFound, match="nothing"):
        store.resume("nothing")
    with store.resume(" ") as session:  # blank is no prefix
        assert session.id == store.active()


def test_resume_without_arguments_is_the_active_session(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_old", "sess_new")
    store.activate("sess_old")
    assert elsewhere("store.resume().id") == "sess_old"


def test_resume_falls_back_to_the_most_recent(store: hansard.Store, elsewhere: Ask) -> None:
    with pytest.raises(NoSessions):
        store.resume()
    begun(store, "sess_older", "sess_newer", "sess_active")
    store.activate("sess_active")
    store.delete("sess_active")
    assert elsewhere("[store.active(), store.resume().id]") == [None, "sess_newer"]
    for head in store.list():
        store.delete(head)
    with store.resume(create=True) as session:
        assert session.history() == []


def test_the_lock_says_who_has_it_and_dies_with_them(
    store: hansard.Store, place: str, elsewhere: Ask
) -> None:
    begun(store, "sess_a")
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, place], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert held.stdout is not None
    assert held.stdout.readline() == "open\n"
    with pytest.raises(SessionBusy) as busy:
        store.open("sess_a")
    assert busy.value.holder.pid == held.pid
    assert [(lock.session, lock.pid) for lock in store.locks()] == [("sess_a", held.pid)]
    found = elsewhere(
        "[refused(store.open, 'sess_a'), refused(store.open, ''), [h.pid for h in store.locks()]]"
    )
    assert found == ["SessionBusy", "InvalidId", [held.pid]]
    store.append("sess_a", user("beside them"))
    held.send_signal(signal.SIGKILL)
    held.communicate()
    with store.open("sess_a") as session:  # nothing to sweep
        assert texts(session.history()) == ["Hello sess_a", "beside them"]


_HOLD = """
import hansard, sys
session = hansard.open(sys.argv[1]).open("sess_a")
print("open", flush=True)
sys.stdin.read()
"""


def test_only_the_file_store_locks_files(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, "sess_a")
    with store.open("sess_a"):
        assert len(list(Path(place, "locks").glob("sess_a*"))) == 1
        assert elsewhere("refused(store.open, 'sess_a')") == "SessionBusy"
    with hansard.open("memory:") as memory:
        begun(memory, "sess_a")
        with memory.open("sess_a"), pytest.raises(SessionBusy):
            memory.open("sess_a")


def test_leaving_unlocks(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_a", "sess_b")
    session = store.open("sess_a")
    store.open("sess_b").close()  # switching: a lock of its own, and the other one stays
    assert elsewhere("[h.session for h in store.locks()]") == ["sess_a"]
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="on the way"):
        with store.open("sess_a"):
            raise RuntimeError("failed on the way")
    assert elsewhere("[store.locks(), refused(store.open, 'sess_a')]") == [[], None]


# -- the active session


def test_the_active_session_is_the_most_recently_used(store: hansard.Store, elsewhere: Ask) -> None:
    assert store.active() is None
    begun(store, "sess_a", "sess_b")
    assert elsewhere("store.active()") is None
    store.open("sess_a").close()
    assert elsewhere("store.active()") == "sess_a"
    store.resume("sess_b").close()
    assert elsewhere("store.active()") == "sess_b"
    store.open("sess_a", exclusive=False).close()  # a look beside somebody's work
    assert elsewhere("store.active()") == "sess_b"
    store.activate("sess_a")
    assert elsewhere("store.active()") == "sess_a"
    with pytest.raises(SessionNotFound):
        store.activate("sess_unknown")
    with pytest.raises(InvalidId):
        store.activate("")
    assert elsewhere("store.active()") == "sess_a"
    store.activate(None)
    assert elsewhere("store.active()") is None


def test_each_store_has_its_own_active_session(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, "sess_a")
    store.activate("sess_a")
    with hansard.open(place, namespace="team") as team:
        assert team.active() is None
        with team.create("sess_t") as session:
            session.append(user("Hello"))
    assert elsewhere("[store.active(), hansard.open(store.url, namespace='team').active()]") == [
        "sess_a",
        "sess_t",
    ]


# -- where it is kept


def test_a_session_costs_what_it_says_and_not_all_the_others(
    store: hansard.Store, place: str, elsewhere: Ask
) -> None:
    begun(store, "sess_a", "sess_b")
    other = Path(place, "sessions", "sess_a.jsonl")
    before = (other.read_bytes(), other.stat().st_mtime_ns, other.stat().st_ino)
    store.append("sess_b", user("More"))
    assert (other.read_bytes(), other.stat().st_mtime_ns, other.stat().st_ino) == before
    other.write_text("not even JSON")
    found = elsewhere(
        "[len(store.read('sess_b').history()), refused(store.read, 'sess_a'),"
        " [f.session for f in store.doctor().findings]]"
    )
    assert found == [2, "SessionNotFound", ["sess_a"]]
    store.append("sess_b", user("an unrelated save"))
    assert other.read_text() == "not even JSON"
    store.append("sess_a", user("begun anew"), create=True)
    assert [path.read_text() for path in Path(place, "aside").iterdir()] == ["not even JSON"]


def test_list_sessions_has_the_newest_first(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_a", "sess_b", "sess_c")
    store.append("sess_a", user("More"), time=NOON + timedelta(hours=9, milliseconds=500))
    assert elsewhere("[h.id for h in store.list()]") == ["sess_a", "sess_c", "sess_b"]
    assert elsewhere("[[h.id for h in store.list(limit=n)] for n in (2, 0, None, 10**30)]") == [
        ["sess_a", "sess_c"],
        [],
        ["sess_a", "sess_c", "sess_b"],
        ["sess_a", "sess_c", "sess_b"],
    ]
    with pytest.raises(ValueError):
        store.list(limit=-1)


def test_get_session_is_read(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_abc")
    assert texts(elsewhere("store.read('sess_abc').history()")) == ["Hello sess_abc"]
    for unknown in ("sess_ab", "abc", "sess_UPPER"):
        with pytest.raises(SessionNotFound):
            store.read(unknown)
    for id in NO_IDS:
        with pytest.raises(InvalidId):
            store.read(id)
    assert len(elsewhere("store.list(empty=True)")) == 1


def test_save_session_writes_what_differs(store: hansard.Store, elsewhere: Ask) -> None:
    messages: list[Any] = [user("one")]
    for _ in range(3):  # as often as one likes: one session, and its messages once
        with store.open("sess_UPPER", create=True) as session:
            session.set_history(messages)
            session.update(title="Counting", model="gpt-5-mini")
            messages.append(assistant(str(len(messages))))
    found = elsewhere("[[h.id, h.title, h.model, h.messages] for h in store.list()]")
    assert found == [["sess_UPPER", "Counting", "gpt-5-mini", 3]]
    created = store.head("sess_UPPER").created_at
    with store.open("sess_UPPER") as session:
        session.set_history([])
    assert elsewhere("[store.read('sess_UPPER').history(), len(store.list())]") == [[], 1]
    assert store.head("sess_UPPER").created_at == created
    for id in NO_IDS:
        with pytest.raises(InvalidId):
            store.open(id, create=True)


def test_remove_session_takes_it_away(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, "sess_a", "sess_b")
    store.activate("sess_a")
    assert store.delete("sess_unknown") is False
    assert elsewhere("store.active()") == "sess_a"
    assert store.delete("sess_a") is True
    assert elsewhere("[store.active(), [h.id for h in store.list()]]") == [None, ["sess_b"]]


# -- session and task, and the seams


def test_a_session_has_many_tasks(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("sess_a") as session:
        for task in ("task_1", "task_2"):
            session.append(user(f"Do {task}"), turn=task)
            session.append(assistant("Done."), turn=task, usage={"input_tokens": 5, "output_tokens": 1})
    found = elsewhere("[[l.turn, l.usage.total_tokens] for l in store.read('sess_a').usage(by='turn')]")
    assert found == [["task_1", 6], ["task_2", 6]]
    assert elsewhere("[r.turn for r in store.read('sess_a').records(kinds='message')]") == [
        "task_1",
        "task_1",
        "task_2",
        "task_2",
    ]


def test_the_backend_is_swapped_by_its_url(place: str, elsewhere: Ask) -> None:
    def used(url: str) -> Any:
        with hansard.open(url) as store:
            begun(store, "sess_a", "sess_b")
            store.activate("sess_a")
            with store.resume() as session:
                session.set_history(users("one", "two"))
            store.delete("sess_b")
            return store.active(), [head.id for head in store.list()], store.read("sess_a").history()

    assert used("memory:") == used(place) == ("sess_a", ["sess_a"], users("one", "two"))
    assert elsewhere("[store.active(), len(store.list())]") == ["sess_a", 1]


def test_custom_backends_fulfil_a_protocol() -> None:
    from hansard.engines.memory import Memory

    class Mine(Memory):
        """An engine of somebody's own."""

    engine: Engine = Mine()
    with hansard.Store(engine) as store:
        begun(store, "sess_a")
        with store.resume("a") as session:
            assert session.id == "sess_a"
