"""PicoClaw's session package, row by row of docs/parity.md."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hansard
from hansard.best_effort import BestEffortStore
from hansard.errors import Closed, InvalidId, InvalidPayload, SessionBusy, SessionNotFound
from hansard.testing.chat import answer, assistant, texts, user, users
from tests.parity.conftest import Ask

KEY = "telegram:123"

NO_KEYS = ["", "\0", "k" * 513]
"""What is no key: PicoClaw takes the first, and its disk refuses the others."""


@pytest.fixture
def sessions(store: hansard.Store) -> BestEffortStore:
    """A SessionStore, as the agent loop has it."""
    return store.best_effort()


def loop(sessions: BestEffortStore) -> tuple[Any, ...]:
    """What an agent loop does with its SessionStore, and all that it reads on the way."""
    sessions.append(KEY, {"role": "user", "content": "Which files?"})
    sessions.append(KEY, call("c1", '{"path": "."}'))
    sessions.append(KEY, answer("c1"))
    sessions.append(KEY, {"role": "assistant", "content": "One: a.py"})
    before = sessions.history(KEY)
    sessions.set_summary(KEY, "Asked for files.")
    sessions.truncate(KEY, 1, pairs=False)
    sessions.save(KEY)
    after, told = sessions.history(KEY), sessions.summary(KEY)
    sessions.set_history(KEY, users("Go on"))
    return before, after, told, sessions.history(KEY), list(sessions.dropped)


def call(id: str, arguments: str) -> dict[str, Any]:
    made = {"id": id, "type": "function", "function": {"name": "ls", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [made], "reasoning_content": "Look first."}


class Broken:
    """A message that cannot say what it is."""

    def model_dump(self, **_: object) -> object:
        raise ZeroDivisionError


# -- the interface SessionStore, and JSONLBackend


def test_a_backend_is_made_of_a_store(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    sessions = store.best_effort()
    assert sessions.history("") == []  # what is no key is in no store
    sessions.append(KEY, user("Hello"))
    assert store.read(KEY).history() == sessions.history(KEY) == users("Hello")
    assert place in repr(sessions)
    found = elsewhere("[store.best_effort().history(k) for k in keys]", keys=[KEY, "unknown"])
    assert found == [users("Hello"), []]


def test_write_errors_are_logged_and_not_returned(
    sessions: BestEffortStore, place: str, elsewhere: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="hansard"):
        assert sessions.append(KEY, {"role": "user", "content": float("nan")}) is None
        assert sessions.append(KEY, Broken()) is None
    assert "append" in caplog.text
    assert KEY in caplog.text
    assert place in caplog.text
    assert [type(lost.error) for lost in sessions.dropped] == [InvalidPayload, ZeroDivisionError]
    assert elsewhere("store.list(empty=True)") == []


@pytest.mark.parametrize(
    ("trouble", "error"),
    [("closed", Closed), ("no key", InvalidId), ("no such thing", (TypeError, InvalidPayload))],
)
def test_no_write_method_returns_an_error(
    store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask, trouble: str, error: Any
) -> None:
    wrong: Any = object()
    key = "" if trouble == "no key" else KEY
    given: tuple[Any, ...] = (user("More"), "Greeted.", users("Other"), 0)
    message, summary, messages, keep = given if trouble != "no such thing" else (wrong,) * 4
    sessions.append(KEY, user("Hello"))
    if trouble == "closed":
        store.close()
    assert sessions.append(key, message) is None
    assert sessions.set_summary(key, summary) is None
    assert sessions.set_history(key, messages) is None
    assert sessions.truncate(key, keep, pairs=False) is None
    lost = [dropped.call for dropped in sessions.dropped]
    assert lost == "append set_summary set_history truncate".split()
    assert all(isinstance(dropped.error, error) for dropped in sessions.dropped)
    if trouble != "no such thing":
        assert sessions.save(key) is None
        assert isinstance(sessions.dropped[-1].error, error)
    assert elsewhere("{h.id: store.read(h).history() for h in store.list(empty=True)}") == {
        KEY: users("Hello")
    }


def test_add_message_appends_role_and_content(sessions: BestEffortStore, elsewhere: Ask) -> None:
    said = [
        ("user", "Hello"),
        ("assistant", "Hi!"),
        ("user", ""),
        ("", "who?"),
        ("user", 'a\n"b" <&> \u2028'),
    ]
    for role, content in said:
        sessions.append(KEY, {"role": role, "content": content})
    for key in NO_KEYS:
        assert sessions.append(key, {"role": "user", "content": "lost"}) is None
    found = elsewhere("[store.read(key).history(), [h.id for h in store.list(empty=True)]]", key=KEY)
    assert [(message["role"], message["content"]) for message in found[0]] == said
    assert found[1] == [KEY]
    assert [type(lost.error) for lost in sessions.dropped] == [InvalidId] * len(NO_KEYS)


def test_add_full_message_keeps_tool_calls_and_their_ids(sessions: BestEffortStore, elsewhere: Ask) -> None:
    full = [call("c1", '{"path": "."}'), answer("c1"), call("c2", "{no JSON"), answer("c2", ""), {}]
    for message in full:
        sessions.append(KEY, message)
    assert not sessions.dropped
    assert elsewhere("store.read(key).history()", key=KEY) == full


def test_get_history_is_the_full_history(sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.extend(KEY, [user("one"), assistant("two"), user("three")])
    mine = sessions.history(KEY)
    mine[0]["content"] = "changed by whoever got it"
    mine.clear()
    assert texts(sessions.history(KEY)) == ["one", "two", "three"]
    assert texts(elsewhere("store.best_effort().history(key)", key=KEY)) == ["one", "two", "three"]


def test_get_history_of_what_is_unknown_is_empty(sessions: BestEffortStore, elsewhere: Ask) -> None:
    assert sessions.history("unknown") == []
    assert not sessions.dropped
    assert [sessions.history(key) for key in NO_KEYS] == [[], [], []]
    assert elsewhere("store.list(empty=True)") == []


def test_get_summary_is_the_summary_or_nothing(sessions: BestEffortStore, elsewhere: Ask) -> None:
    assert sessions.summary("unknown") == sessions.summary("") == ""
    sessions.append(KEY, user("Hello"))
    assert sessions.summary(KEY) == ""
    sessions.set_summary(KEY, "Greeted.")
    assert sessions.summary(KEY) == "Greeted."
    assert elsewhere("[store.read(key).summary(), store.best_effort().summary('unknown')]", key=KEY) == [
        "Greeted.",
        "",
    ]


def test_set_summary_replaces_the_summary(sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.set_summary("new", "Begun by a summary.")
    for text in ("Likes coffee.", "Likes tea."):
        sessions.set_summary(KEY, text)
    sessions.set_summary("emptied", "Old.")
    sessions.set_summary("emptied", "")
    assert sessions.set_summary("", "lost") is None
    found = elsewhere("{h.id: [h.summary, store.read(h).history()] for h in store.list(empty=True)}")
    assert found == {"new": ["Begun by a summary.", []], KEY: ["Likes tea.", []], "emptied": ["", []]}


def test_set_history_replaces_the_full_history(sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.extend(KEY, users("one", "two", "three"))
    sessions.set_summary(KEY, "Counted.")
    mine = [user("two"), assistant("and a half"), user("three")]
    sessions.set_history(KEY, mine)
    mine[0]["content"] = "changed after it was set"
    sessions.set_history("new", users("begun"))
    sessions.set_history("emptied", users("gone"))
    sessions.set_history("emptied", [])
    sessions.set_history("unknown", [])
    assert sessions.set_history("", users("lost")) is None
    found = elsewhere(
        "{h.id: [m['content'] for m in store.read(h).history()] for h in store.list(empty=True)}"
    )
    assert found == {KEY: ["two", "and a half", "three"], "new": ["begun"], "emptied": []}
    assert sessions.summary(KEY) == "Counted."
    assert sessions.history("unknown") == []


@pytest.mark.parametrize(("keep", "left"), [(2, "c d"), (9, "a b c d"), (4, "a b c d"), (0, ""), (-3, "")])
def test_truncate_history_keeps_only_the_last(
    sessions: BestEffortStore, elsewhere: Ask, keep: int, left: str
) -> None:
    sessions.extend(KEY, users("a", "b", "c", "d"))
    for _ in range(2):
        sessions.truncate(KEY, keep, pairs=False)
    sessions.truncate("unknown", keep, pairs=False)
    assert not sessions.dropped
    found = elsewhere("[store.read(key).history(), [h.id for h in store.list(empty=True)]]", key=KEY)
    assert [texts(found[0]), found[1]] == [left.split(), [KEY]]


def test_truncate_history_counts_messages_and_not_pairs(sessions: BestEffortStore, elsewhere: Ask) -> None:
    said = [user("Which files?"), call("c1", "{}"), answer("c1"), assistant("One: a.py")]
    sessions.set_history(KEY, said)
    sessions.truncate(KEY, 2, pairs=False)
    assert elsewhere("store.read(key).history()", key=KEY) == said[2:]
    sessions.set_history(KEY, said)
    sessions.truncate(KEY, 2)  # a provider refuses a result without its call
    assert elsewhere("store.read(key).history()", key=KEY) == said[3:]


def test_save_has_nothing_to_persist(sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.append(KEY, user("on disk before anybody saves"))
    assert texts(elsewhere("store.read(key).history()", key=KEY)) == ["on disk before anybody saves"]
    sessions.append(KEY, user("not synced yet"), durable=False)
    assert sessions.save(KEY) is sessions.save("unknown") is None
    assert not sessions.dropped
    assert [sessions.save(key) for key in NO_KEYS] == [None, None, None]
    assert elsewhere("[h.messages for h in store.list(empty=True)]") == [2]


def test_every_write_is_synced_at_once(sessions: BestEffortStore, elsewhere: Ask, synced: list[int]) -> None:
    def syncs(call: Callable[[], Any]) -> int:
        before = len(synced)
        call()
        return len(synced) - before

    assert syncs(lambda: sessions.append("another", user("Hello"))) > 0
    sessions.append(KEY, user("Hello"))
    assert syncs(lambda: sessions.append(KEY, assistant("Hi!"))) > 0
    assert syncs(lambda: sessions.set_summary(KEY, "Greeted.")) > 0
    assert syncs(lambda: sessions.set_history(KEY, users("one", "two"))) > 0
    assert syncs(lambda: sessions.truncate(KEY, 1, pairs=False)) > 0
    assert syncs(lambda: sessions.append("", user("no key"))) == 0
    assert syncs(lambda: sessions.append(KEY, user("three"), durable=False)) == 0
    assert syncs(lambda: sessions.save(KEY)) > 0  # all that it has to do
    assert syncs(lambda: sessions.history(KEY)) == syncs(lambda: sessions.save("unknown")) == 0
    assert texts(elsewhere("store.read(key).history()", key=KEY)) == ["two", "three"]


def test_compaction_is_vacuum(store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.extend(KEY, users("a", "b", "c", "d"))
    log = Path(store.url.removeprefix("file:")) / "sessions"
    whole = sum(file.stat().st_size for file in log.iterdir())
    assert not store.vacuum(KEY, drop_history=True)  # a no-op when there are none
    sessions.truncate(KEY, 1, pairs=False)
    assert not store.vacuum(KEY)
    assert elsewhere("len(list(store.read(key).records(kinds='message')))", key=KEY) == 4
    done = store.vacuum(KEY, drop_history=True)
    assert (done.ids, done.bytes > 0) == ([KEY], True)
    assert sum(file.stat().st_size for file in log.iterdir()) < whole
    found = elsewhere("[store.read(key).history(), store.head(key).messages, store.head(key).title]", key=KEY)
    assert found == [users("d"), 4, "a"]
    with pytest.raises(SessionNotFound):
        store.vacuum("unknown")


def test_close_of_a_manager_is_a_no_op(sessions: BestEffortStore, elsewhere: Ask) -> None:
    with hansard.open("memory:") as memory:
        for each in (memory.best_effort(), sessions):
            each.close()
            each.append(KEY, user("Hello"))
            each.close()
            each.close()
            assert each.history(KEY) == users("Hello")
            assert not each.dropped
    assert elsewhere("store.read(key).history()", key=KEY) == users("Hello")


def test_close_releases_the_store(store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.append(KEY, user("Hello"))
    sessions.close()  # the store belongs to whoever opened it
    sessions.append(KEY, user("More"))
    held = store.open(KEY)
    assert elsewhere("[h.session for h in store.locks()]") == [KEY]
    store.close()
    store.close()
    assert elsewhere("store.locks()") == []
    with pytest.raises(Closed):
        held.append(user("too late"))
    assert sessions.history(KEY) == []
    assert isinstance(sessions.dropped[0].error, Closed)
    assert texts(elsewhere("store.read(key).history()", key=KEY)) == ["Hello", "More"]


def test_the_storage_is_swapped_without_touching_the_loop(
    sessions: BestEffortStore, place: str, elsewhere: Ask
) -> None:
    with hansard.open("memory:") as memory:
        found = loop(memory.best_effort())
    before, after, told, set_anew, dropped = found
    assert [len(before), texts(after), told, set_anew, dropped] == [
        4,
        ["One: a.py"],
        "Asked for files.",
        users("Go on"),
        [],
    ]
    assert loop(sessions) == found
    assert elsewhere("store.read(key).history()", key=KEY) == users("Go on")


# -- Session and SessionManager


def test_a_session_has_its_fields(store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask) -> None:
    sessions.set_summary(KEY, "Greeted.")
    sessions.append(KEY, user("Hello"))
    head = store.head(KEY)
    assert (head.id, head.summary) == (KEY, "Greeted.")
    assert head.created_at <= head.updated_at
    found = elsewhere("[store.head(key), store.read(key).history()]", key=KEY)
    assert [found[0]["id"], found[0]["summary"], found[1]] == [KEY, "Greeted.", users("Hello")]
    assert found[0]["created_at"] <= found[0]["updated_at"]


def test_updated_is_the_time_of_the_last_message(
    store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask
) -> None:
    updated = "store.head(key).updated_at"
    sessions.append(KEY, user("one"))
    first = elsewhere(updated, key=KEY)
    sessions.append(KEY, user("two"))
    second = elsewhere(updated, key=KEY)
    assert first < second
    sessions.set_summary(KEY, "Counted.")
    sessions.truncate(KEY, 1, pairs=False)
    sessions.set_history(KEY, [])
    assert elsewhere(updated, key=KEY) == second
    sessions.set_history(KEY, users("three"))
    assert second < elsewhere(updated, key=KEY)


def test_a_manager_has_a_storage_or_only_memory(place: str, elsewhere: Ask, tmp_path: Path) -> None:
    with hansard.open(place) as store, hansard.open("memory:") as memory:
        for each in (store, memory):
            each.best_effort().append(KEY, user("Hello"))
            assert each.best_effort().history(KEY) == users("Hello")
        assert elsewhere("[h.id for h in store.list()]") == [KEY]  # before any Save
        assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_get_or_create_is_open_with_create(store: hansard.Store, elsewhere: Ask) -> None:
    with store.open(KEY, create=True) as session:
        assert session.history() == []
        session.append(user("Hello"))
    with store.open(KEY, create=True) as session:
        assert session.history() == users("Hello")
    with store.open("unused", create=True) as session:
        assert (session.id, session.summary(), list(session.records())) == ("unused", "", [])
    for key in NO_KEYS:
        with pytest.raises(InvalidId):
            store.open(key, create=True)
    assert elsewhere("[h.id for h in store.list(empty=True)]") == [KEY]


def test_keys_that_look_alike_are_different_sessions(sessions: BestEffortStore, elsewhere: Ask) -> None:
    keys = ["telegram:1", "telegram/1", "telegram\\1", "telegram_1", "Telegram:1", "..", "../1"]
    for key in keys:
        sessions.append(key, user(key))
    assert not sessions.dropped
    found = elsewhere("{h.id: store.read(h).history()[0]['content'] for h in store.list()}")
    assert found == {key: key for key in keys}


def test_writers_of_one_session_wait_for_each_other(
    sessions: BestEffortStore, place: str, elsewhere: Ask
) -> None:
    def work(writer: int) -> None:
        with hansard.open(place) as store:
            mine = store.best_effort()
            for turn in range(10):
                mine.append(KEY, user(f"{writer}.{turn}"))
                mine.truncate(KEY, 4, pairs=False)
                mine.set_summary(KEY, f"{writer}.{turn}")
                mine.set_history(KEY, (user(text) for text in ("both", "of them")))
            lost.extend(mine.dropped)

    lost: list[object] = []
    writers = [Thread(target=work, args=(writer,)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert lost == []
    sessions.set_history(KEY, users("at last"))
    found = elsewhere(
        "[store.read(key).history(), len(list(store.read(key).records(kinds='message')))]", key=KEY
    )
    assert found[0] == users("at last")
    assert found[1] >= 40  # each that was appended, and not only the last


def test_what_somebody_else_has_open_is_kept_from_being_changed(
    store: hansard.Store, sessions: BestEffortStore, elsewhere: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", 0.05)
    with store.open(KEY, create=True) as session:
        session.append(user("Hello"))
        sessions.append(KEY, user("More"))
        sessions.set_summary(KEY, "Greeted.")
        assert sessions.truncate(KEY, 0, pairs=False) is None
        assert sessions.set_history(KEY, (user(text) for text in ("lost",))) is None
    assert [type(lost.error) for lost in sessions.dropped] == [SessionBusy, SessionBusy]
    assert sessions.dropped[1].arguments == (KEY, users("lost"))
    found = elsewhere("[store.read(key).history(), store.read(key).summary()]", key=KEY)
    assert found == [users("Hello", "More"), "Greeted."]
