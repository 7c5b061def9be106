"""AgentMux's session zones, row by row of docs/parity.md: what there is of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hansard
from hansard.errors import Conflict, Damaged, InvalidId, SessionNotFound
from hansard.testing.chat import user
from tests.parity.conftest import Ask

AGENT = "def-1"
SNAPSHOT = b'{"nodes": [{"type": "user_message", "message": "hi"}]}'


def current(store: hansard.Store, agent: str = AGENT) -> str:
    """The session of an agent, begun with a snapshot, and named as its current one."""
    with store.create(agent=agent) as session:
        session.append(user(f"Hello {agent}"))
        session.documents.put("output.state.json", SNAPSHOT)
        session.output('{"line": 1}')
        store.names.set(f"agent/{agent}/current", session.id)
        return session.id


def test_a_session_belongs_to_the_agent_and_not_to_its_credentials(
    store: hansard.Store, elsewhere: Ask
) -> None:
    one, other = current(store, "def-1"), current(store, "def-2")
    with store.open(one) as session:  # the bundle changes; the agent does not
        session.update(meta={"bundle": "another"})
    assert elsewhere("[[h.id for h in store.list(agent=a)] for a in ('def-1', 'def-2', 'def', '')]") == [
        [one],
        [other],
        [],
        [],
    ]


def test_the_current_session_of_an_agent_has_a_name(store: hansard.Store, elsewhere: Ask) -> None:
    assert store.names.get("agent/def-1/current") is None
    first = current(store)
    assert elsewhere("[store.names.get(n), store.resume('@' + n).id]", n="agent/def-1/current") == [
        first,
        first,
    ]
    second = current(store)
    assert elsewhere("store.names.list('agent/')") == {"agent/def-1/current": second}
    store.delete(second)
    assert elsewhere("store.names.list()") == {}
    for name in ("", "\0"):
        with pytest.raises(InvalidId):
            store.names.set(name, first)
    with pytest.raises(SessionNotFound):
        store.names.set("agent/def-1/current", "unknown")


def test_any_text_is_a_definition_id(store: hansard.Store, elsewhere: Ask) -> None:
    ids = ["def-1", "../etc", "a:b", "a", "a-b", "café", "a b"]
    found = {agent: current(store, agent) for agent in ids}
    store.append("nobody's", user("Hello"), create=True)
    assert elsewhere("{a: store.names.get(f'agent/{a}/current') for a in ids}", ids=ids) == found
    assert elsewhere("[[h.id for h in store.list(agent=a)] for a in ids]", ids=ids) == [
        [found[id]] for id in ids
    ]
    assert elsewhere("[h.id for h in store.list(agent='')]") == ["nobody's"]


def test_a_bad_id_is_refused_with_a_stable_error(store: hansard.Store, elsewhere: Ask) -> None:
    for id in ("", " ", "\0", "x" * 513, "\ud800"):
        with pytest.raises(InvalidId, match=r"^invalid session id"):
            store.open(id, create=True)
    refused = "[refused(store.open, id, create=True) for id in ('', ' ', 'x' * 513)]"
    assert elsewhere(f"[*{refused}, store.list(empty=True)]") == ["InvalidId"] * 3 + [[]]


def test_write_session_state_creates_or_overwrites(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(agent=AGENT) as session:
        for data in (b"", b"\xff\0 no text", SNAPSHOT, SNAPSHOT):
            session.documents.put("output.state.json", data)
            kept = elsewhere("list(store.read(id).documents.get('output.state.json').data)", id=session.id)
            assert bytes(kept) == data
        session.append(user("Hello"))
        with pytest.raises(InvalidId):
            session.documents.put("", SNAPSHOT)
        assert elsewhere("store.read(id).documents.list()", id=session.id) == ["output.state.json"]


def test_read_session_state_of_a_fresh_agent_is_nothing(store: hansard.Store, elsewhere: Ask) -> None:
    assert elsewhere("store.names.get('agent/def-1/current')") is None  # and no error
    with store.create(agent=AGENT) as session:
        assert session.documents.get("output.state.json") is None
        assert session.documents.list() == []
    assert elsewhere("store.list(empty=True)") == []
    id = current(store)
    found = elsewhere(
        "(lambda d: [d.data.decode(), d.time])(store.read(id).documents.get('output.state.json'))", id=id
    )
    assert json.loads(found[0]) == json.loads(SNAPSHOT)
    assert found[1].endswith("Z")


def test_append_session_output_keeps_lines(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    with store.create(agent=AGENT) as session:
        assert (
            elsewhere("refused(store.read, id)", id=session.id) == "SessionNotFound"
        )  # there is no file yet
        session.output("")
        assert elsewhere("refused(store.read, id)", id=session.id) == "SessionNotFound"
        for line in ('{"n": 1}', '{"n": 2}\n', "", "\n", "a\nb", b"\xff"):
            session.output(line)
        assert session.head.messages == 0
    found = elsewhere("[r.data for r in store.read(id).records(kinds='output')]", id=session.id)
    assert found == ['{"n": 1}', '{"n": 2}', "a\nb", {"base64": "/w=="}]
    log = next(Path(place, "sessions").iterdir())
    with log.open("ab") as file:
        file.write(b'{"seq":5,"kind":"output","data":"to')  # the crash that the replay is for
    with store.open(session.id) as session:
        session.output("after the crash")
    found = elsewhere("[r.data for r in store.read(id).records(kinds='output')]", id=session.id)
    assert found[-2:] == [{"base64": "/w=="}, "after the crash"]


def test_ensure_file_makes_it_only_where_it_is_missing(store: hansard.Store, elsewhere: Ask) -> None:
    id = current(store)
    with store.open(id) as session:
        session.documents.put("new", b"", expect="")
        with pytest.raises(Conflict):  # it says so, and does nothing
            session.documents.put("output.state.json", b"", expect="")
        with pytest.raises(InvalidId):
            session.documents.put("", b"", expect="")
    found = elsewhere(
        "[store.read(id).documents.get(n).data.decode() for n in ('new', 'output.state.json')]", id=id
    )
    assert found == ["", SNAPSHOT.decode()]


def test_write_zone_file_replaces_a_whole_file(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    id = current(store)
    with store.open(id) as session:
        session.documents.put("big", b"x" * 200_000)
        session.documents.put("big", b"y" * 70_000)
        session.documents.put("other", b"kept")
        file = next(path for path in Path(place, "documents").rglob("big"))
        file.write_bytes(file.read_bytes()[:-1])  # half a file is never given out
        with pytest.raises(Damaged):
            session.documents.get("big")
        with pytest.warns(hansard.HansardWarning, match="set aside"):
            session.documents.put("big", b"z" * 70_000)
    found = elsewhere(
        "(lambda d: [len(d.get('big').data), d.get('other').data.decode()])(store.read(id).documents)", id=id
    )
    assert found == [70_000, "kept"]


def test_move_zone_is_one_write_that_copies_nothing(store: hansard.Store, elsewhere: Ask) -> None:
    id = current(store, "old")
    names = {"agent/new/current": id, "agent/old/current": None}
    with pytest.raises(Conflict):
        store.names.move(names, expect={"agent/old/current": "another"})
    store.names.move(names, expect={"agent/old/current": id})
    store.names.move(names)  # as often as one likes
    with store.open(id) as session:
        session.update(agent="new")
    assert elsewhere("[store.names.list('agent/'), store.read(id).documents.list()]", id=id) == [
        {"agent/new/current": id},
        ["output.state.json"],
    ]
    assert elsewhere("[len(store.list(agent=a)) for a in ('old', 'new')]") == [0, 1]
    with pytest.raises(SessionNotFound):
        store.names.move({"agent/new/current": "unknown"})


def test_a_preview_is_cut_on_one_line(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(agent=AGENT) as session:
        session.append(user("first"))
        session.append(user("  the \n\n last  " + "é" * 300))
    found = elsewhere("store.head(id).preview", id=session.id)
    assert found.startswith("the last é")
    assert (len(found), found[-1]) == (120, "…")
    with store.create(agent=AGENT, eager=True) as session:
        assert session.head.preview == ""
