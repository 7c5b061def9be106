"""The Go operator's state and sessions, row by row of docs/parity.md."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.errors import Damaged, InvalidId, InvalidPayload, SessionNotFound, Unsupported
from hansard.testing.chat import assistant, texts, user
from tests.parity.conftest import Ask

FILES = ["settings", "providers", "sessions", "mcp-servers", "spaces", "hooks", "skills", "context"]
"""The state files that need no encryption."""


# -- the state store


def test_the_state_store_is_a_folder_of_json_files(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    for name in FILES:
        store.state(name).set("who", name)
    assert elsewhere("[store.state(name).all() for name in names]", names=FILES) == [
        {"who": name} for name in FILES
    ]
    assert sorted(path.name for path in Path(place, "state").iterdir()) == sorted(
        f"{name}.json" for name in FILES
    )
    for name in ("", "\0", "x" * 513):
        with pytest.raises(InvalidId):
            store.state(name)


def test_get_gives_the_value_or_nothing(store: hansard.Store, elsewhere: Ask) -> None:
    state = store.state("settings")
    assert state.get("unknown") is None
    assert state.get("unknown", "default") == "default"
    assert "unknown" not in state.all()
    for key, value in {
        "": 1,
        "theme": {"dark": [True, None]},
        "zero": 0,
        "negative": -1,
        "none": None,
    }.items():
        state.set(key, value)
    mine = state.get("theme")
    mine["dark"].append("changed by whoever got it")
    assert elsewhere(
        "[store.state('settings').get(k, '?') for k in ['', 'theme', 'zero', 'negative', 'none', 'x']]"
    ) == [
        1,
        {"dark": [True, None]},
        0,
        -1,
        None,
        "?",
    ]


def test_set_flushes_to_disk(store: hansard.Store, elsewhere: Ask) -> None:
    state = store.state("settings")
    state.set("theme", "light")
    state.set("theme", "dark")
    assert elsewhere("store.state('settings').all()") == {"theme": "dark"}
    for value in (float("nan"), b"bytes", {1: 2}):
        with pytest.raises(InvalidPayload):
            state.set("theme", value)
    assert elsewhere("store.state('settings').all()") == state.all() == {"theme": "dark"}


def test_delete_takes_the_key_away(store: hansard.Store, elsewhere: Ask) -> None:
    state = store.state("settings")
    state.update({"theme": "dark", "font": "mono"})
    assert state.delete("theme") is True
    assert state.delete("theme") is state.delete("") is store.state("unknown").delete("theme") is False
    assert elsewhere("[store.state(name).all() for name in ('settings', 'unknown')]") == [
        {"font": "mono"},
        {},
    ]


def test_load_reads_what_is_stored_now(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    state = store.state("settings")
    assert state.load() == {}
    elsewhere("store.state('settings').set('theme', 'dark')")
    assert state.get("theme") == "dark"  # nothing is cached: nobody has to load it again
    assert state.load() == {"theme": "dark"}
    Path(place, "state", "settings.json").write_text('{"data": {"them')
    with pytest.raises(Damaged):
        state.load()
    assert elsewhere("store.state('other').load()") == {}


def test_save_has_nothing_left_to_do(store: hansard.Store, elsewhere: Ask) -> None:
    state = store.state("settings")
    state.save()
    assert elsewhere("store.state('settings').all()") == {}
    state.set("theme", "dark")
    assert elsewhere("store.state('settings').all()") == {"theme": "dark"}
    assert state.save() is None
    assert elsewhere("store.state('settings').all()") == {"theme": "dark"}


def test_all_is_every_key_and_the_callers_own(store: hansard.Store, elsewhere: Ask) -> None:
    state = store.state("settings")
    assert state.all() == {}
    assert state.update({"a": 1, "b": [2]}, unset=["unknown"]) == {"a": 1, "b": [2]}
    state.all()["b"].append(3)
    state.all().clear()
    assert elsewhere("store.state('settings').all()") == state.all() == {"a": 1, "b": [2]}


def test_access_is_safe_from_many_threads_and_processes(
    store: hansard.Store, place: str, elsewhere: Ask
) -> None:
    def add(members: dict[str, Any]) -> None:
        members["count"] = members.get("count", 0) + 1

    def work(_: int) -> None:
        with hansard.open(place) as mine:
            for _ in range(10):
                mine.state("settings").update(add)
                assert mine.state("settings").get("count") > 0

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    again = "lambda members: members.update(count=members['count'] + 1)"
    counted = f"[store.state('settings').update({again}) for _ in range(5)][-1]"
    assert elsewhere(counted) == store.state("settings").all() == {"count": 45}


# -- agent sessions


def test_a_session_has_its_fields(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("abc123", agent="general") as session:
        session.append(user("Build a login page"))
        assert (session.head.status, session.head.ended_at) == ("active", None)
        session.append(assistant("Done."))
        session.update(status="done")
    found = elsewhere("store.head('abc123')")
    assert [found[name] for name in ("id", "agent", "status")] == ["abc123", "general", "done"]
    assert found["created_at"] <= found["ended_at"]


@pytest.mark.parametrize("status", ["done", "error"])
def test_a_status_ends_a_session_or_opens_it_again(store: hansard.Store, elsewhere: Ask, status: str) -> None:
    with store.create("abc123") as session:
        session.append(user("Hello"))
        session.update(status=status)
        assert elsewhere("[store.head('abc123').status, store.head('abc123').ended_at is None]") == [
            status,
            False,
        ]
        session.update(status="active")
        session.update()
    assert elsewhere("[store.head('abc123').status, store.head('abc123').ended_at]") == ["active", None]
    assert elsewhere("[len(store.list(status=s)) for s in ('active', 'done', 'error', '')]") == [1, 0, 0, 0]


def test_usage_has_its_three_counts(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("abc123") as session:
        session.append(user("Hello"))
        assert (session.usage().input_tokens, session.usage().total_tokens) == (0, 0)
        session.append(assistant("Hi!"), usage={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10})
        session.add_usage({"input_tokens": 5, "output_tokens": 0})
        with pytest.raises(InvalidPayload):
            session.add_usage({"InputTokens": 5})
    found = elsewhere("store.read('abc123').usage()")
    assert [found[name] for name in ("input_tokens", "output_tokens", "total_tokens")] == [12, 3, 15]


def test_a_dispatch_is_a_session_from_its_first_message_on(store: hansard.Store, elsewhere: Ask) -> None:
    seen = "[[h.status, h.messages] for h in store.list(agent='coder')]"
    with store.create(agent="coder") as session:
        assert elsewhere(seen) == []
        session.append(user("Build a login page"))
        assert elsewhere(seen) == [["active", 1]]  # a crash in the middle leaves what was said
        session.append(assistant("Done."))
        session.update(status="done")
    assert elsewhere(seen) == [["done", 2]]


# -- the session manager


def test_manager_create_makes_a_session_of_an_agent(store: hansard.Store, elsewhere: Ask) -> None:
    with (
        store.create(agent="general") as one,
        store.create(agent="general") as other,
        store.create(agent="") as none,
    ):
        for session in (one, other, none):
            session.append(user("Hello"))
    assert one.id != other.id
    assert sorted(elsewhere("[h.id for h in store.list(agent='general')]")) == sorted([one.id, other.id])
    assert elsewhere("[h.id for h in store.list(agent='')]") == [none.id]


def test_manager_get_finds_a_session_or_says_there_is_none(store: hansard.Store, elsewhere: Ask) -> None:
    store.append("abc123", user("Hello"), create=True)
    assert store.read("abc123").history() == [user("Hello")]
    for call in (store.read, store.head, store.open):
        with pytest.raises(SessionNotFound):
            call("unknown")
        with pytest.raises(InvalidId):
            call("")
    assert elsewhere("[store.head('abc123').id, refused(store.head, 'abc'), len(store.list())]") == [
        "abc123",
        "SessionNotFound",
        1,
    ]


def test_manager_list_has_all_sessions(store: hansard.Store, elsewhere: Ask) -> None:
    assert list(store.list()) == []
    for place, id in enumerate(["abc123", "def456", "ghi789"]):
        store.append(id, user("Hello"), create=True, time=datetime(2026, 3, 29, place, tzinfo=UTC))
    assert elsewhere("[h.id for h in store.list(limit=None)]") == ["ghi789", "def456", "abc123"]
    first = elsewhere("(lambda page: [[h.id for h in page], page.next])(store.list(limit=2))")
    assert first[0] == ["ghi789", "def456"]
    assert elsewhere("[h.id for h in store.list(limit=2, after=next)]", next=first[1]) == ["abc123"]


def test_manager_save_has_nothing_left_to_write(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("abc123") as session:
        session.save()
        session.append(user("one"))
        assert texts(elsewhere("store.read('abc123').history()")) == ["one"]
        session.append(user("two"), durable=False)
        session.save()
    assert texts(elsewhere("store.read('abc123').history()")) == ["one", "two"]


def test_manager_load_goes_on_with_a_session(store: hansard.Store, elsewhere: Ask) -> None:
    store.append("abc123", user("Hello"), create=True)
    assert elsewhere("[store.open('abc123').history(), refused(store.open, 'unknown')]") == [
        [user("Hello")],
        "SessionNotFound",
    ]


def test_manager_delete_takes_a_session_away(store: hansard.Store, elsewhere: Ask) -> None:
    for id in ("abc123", "def456"):
        store.append(id, user("Hello"), create=True)
    assert store.delete("abc123") is True
    assert store.delete("abc123") is store.delete("unknown") is False
    with pytest.raises(InvalidId):
        store.delete("")
    assert elsewhere("[h.id for h in store.list(empty=True)]") == ["def456"]


# -- how sessions are kept


def test_sessions_are_files_beside_an_index(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    for id in ("abc123", "../def456"):
        store.append(id, user("Hello"), create=True)
    store.close()
    logs = [path for path in Path(place, "sessions").iterdir() if path.suffix == ".jsonl"]
    assert len(logs) == 2
    assert [path.name for path in Path(place).parent.iterdir()] == ["store"]
    Path(place, "catalog.db").unlink()  # the index is made anew from the sessions
    assert sorted(elsewhere("[h.id for h in store.list()]")) == ["../def456", "abc123"]


def test_the_list_has_what_the_index_had(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create("abc123", agent="general") as session:
        session.append(user("Build a login page"), time=datetime(2026, 3, 29, 10, 5, tzinfo=UTC))
        session.append(
            assistant("Done."), time=datetime(2026, 3, 29, 10, 5, tzinfo=UTC) - timedelta(minutes=5)
        )
    found = elsewhere("[[h.id, h.agent, h.title, h.created_at, h.updated_at] for h in store.list()]")
    assert found[0][:3] == ["abc123", "general", "Build a login page"]
    assert found[0][4] == "2026-03-29T10:00:00Z"
    assert found[0][3].endswith("Z")


def test_full_data_is_loaded_on_demand(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    store.append("abc123", user("Hello"), create=True)
    store.close()
    log = next(Path(place, "sessions").iterdir())
    before = log.stat().st_atime_ns, log.stat().st_mtime_ns
    listed = elsewhere("[[h.title, hasattr(h, 'history')] for h in store.list()]")
    assert listed == [["Hello", False]]
    assert log.stat().st_mtime_ns == before[1]
    assert elsewhere("store.read(store.list()[0]).history()") == [user("Hello")]


# -- what is not there yet says so


@pytest.mark.parametrize(
    "asked",
    [lambda store: store.state("credentials", secret=True)],
    ids=["credentials are not kept in the open"],
)
def test_what_comes_later_is_refused(
    store: hansard.Store, place: str, elsewhere: Ask, asked: Callable[[hansard.Store], Any]
) -> None:
    with pytest.raises(Unsupported):
        asked(store)
    assert not list(Path(place).glob("state/*"))
    assert elsewhere("store.state('credentials').all()") == {}
