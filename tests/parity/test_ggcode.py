"""ggcode's session package, row by row of docs/parity.md."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import formats
from hansard.errors import (
    Conflict,
    InvalidId,
    InvalidPayload,
    SessionNotFound,
    StoreUnavailable,
)
from hansard.testing.chat import assistant, texts, user, users
from tests.parity.conftest import Ask, Written

ID = "20260525-101500-0123456789abcdef"
NO_IDS = ["", " ", "\0", "x" * 513]
MONDAY = datetime(2026, 5, 25, 10, tzinfo=UTC)


def begun(store: hansard.Store, id: str, *texts: str, at: datetime | None = None) -> hansard.Head:
    """A session in which a person has said these things."""
    with store.create(id) as session:
        for text in texts:
            session.append(user(text), time=at)
    return store.head(id)


# -- functions


def test_the_current_workspace_is_where_we_are(
    store: hansard.Store, elsewhere: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert hansard.workspace() == str(work.resolve())
    with store.create(ID, workspace=".") as session:
        session.append(user("Hello"))
    assert elsewhere("store.head(id).workspace", id=ID) == str(work.resolve())


def test_a_workspace_is_normalized(store: hansard.Store, elsewhere: Ask, tmp_path: Path) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    work.mkdir()
    link.symlink_to(work)
    real = str(work.resolve())
    for path in (work, str(work) + "/", link, f"{work}/../work", f"{link}/."):
        assert hansard.workspace(path) == real
    assert hansard.workspace("") == hansard.workspace("  ") == ""
    assert hansard.workspace(tmp_path / "gone") == str(tmp_path.resolve() / "gone")
    begun(store, "elsewhere", "Hello")
    with store.create(ID, workspace=link) as session:
        session.append(user("Hello"))
    seen = "[[h.id for h in store.list(workspace=path)] for path in paths]"
    assert elsewhere(seen, paths=[real, f"{link}/", str(tmp_path)]) == [[ID], [ID], []]


def test_the_default_folder(
    store: hansard.Store, elsewhere: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Path(hansard.default_path()).is_relative_to(tmp_path)
    assert not Path(hansard.default_path()).exists()
    home = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    begun = "(__import__('os').environ.update(home), hansard.default_path())[1]"
    assert elsewhere(begun, home=home) == hansard.default_path()
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: "~/hansard")  # nobody knows the home
    with pytest.raises(StoreUnavailable):
        hansard.default_path()


def test_a_session_is_rendered_to_markdown(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(ID, vendor="zai", endpoint="main", model="glm-5") as session:
        session.extend([user("Build a login page"), assistant("Done.")])
        text = formats.render(session.head, session.history(), "markdown")
    assert text.startswith("# Build a login page\n")
    assert "Done." in text
    assert "glm-5" in text
    assert "Build a login page" in formats.render(None, users("Build a login page"), "markdown")
    assert formats.render(None, [], "markdown")  # of what nobody said, an empty document
    seen = elsewhere(
        "(lambda view: hansard.formats.render(view.head, view.history(), 'markdown'))(store.read(id))", id=ID
    )
    assert seen == text


# -- the store


def test_a_store_is_rooted_at_a_folder(store: hansard.Store, elsewhere: Ask, tmp_path: Path) -> None:
    place = tmp_path / "new" / "folders"
    with hansard.open(place) as store:
        assert place.is_dir()
        assert store.url == f"file:{place}"
        begun(store, ID, "Hello")
    log = place / "sessions" / f"{ID}.jsonl"
    assert [line[:1] + line[-1:] for line in log.read_text().splitlines()] == ["{}", "{}"]
    assert elsewhere("[h.id for h in hansard.open(place, create=False).list()]", place=str(place)) == [ID]
    with pytest.raises(ValueError):
        hansard.open("")
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(OSError):
        hansard.open(file)
    assert file.read_text() == "no folder"


def test_the_default_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, elsewhere: Ask
) -> None:
    monkeypatch.setenv("HANSARD_STORE", place)
    with hansard.open() as store:
        begun(store, ID, "Hello")
    assert elsewhere("[h.id for h in store.list()]") == [ID]
    monkeypatch.delenv("HANSARD_STORE")
    monkeypatch.setattr("hansard.store.default_path", lambda: str(tmp_path / "default"))
    with hansard.open() as store:
        assert store.url == f"file:{tmp_path / 'default'}"


def test_a_new_session_has_a_generated_id(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(vendor="zai", endpoint="main", model="glm-5") as session:
        assert session.id.startswith("sess_")
        assert elsewhere("store.list(empty=True)") == []
        session.append(user("Hello"))
    with store.create(vendor="", endpoint="", model="") as other:
        assert other.id != session.id
        other.append(user("Hello"))
    seen = elsewhere(
        "[[h.vendor, h.endpoint, h.model] for h in map(store.head, ids)]", ids=[session.id, other.id]
    )
    assert seen == [["zai", "main", "glm-5"], ["", "", ""]]


def test_append_message_appends_and_brings_the_session_up_to_date(
    store: hansard.Store, elsewhere: Ask
) -> None:
    with store.create(ID) as session:
        before = session.head
        said = session.append({"role": "user", "content": [{"type": "text", "text": "Build\n a login page"}]})
        session.append(assistant("Done."))
        head = session.head
        assert (head.title, head.messages) == ("Build a login page", 2)
        assert head.updated_at >= said.at >= before.updated_at
        assert len(session.history()) == 2
        with pytest.raises(InvalidPayload):
            session.append({1: "no JSON"})
    seen = elsewhere("[store.head(id).title, store.head(id).messages, len(store.read(id).history())]", id=ID)
    assert seen == ["Build a login page", 2, 2]


def torn(log: Path, before: int) -> Iterator[int]:
    """The log as it is when its last write ends at any of its bytes."""
    whole = log.read_bytes()
    for end in sorted({*range(before, len(whole), 5), len(whole) - 1, len(whole)}):
        log.write_bytes(whole[:end])
        yield len(whole) - end


def test_append_message_is_atomic(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, ID, "one")
    log = Path(place, "sessions", f"{ID}.jsonl")
    before = log.stat().st_size
    store.append(ID, user("two"))
    for missing in torn(log, before):
        seen = elsewhere("[texts(store.read(id)), store.head(id).messages]", id=ID)
        # the last newline may be missing: the message is there without it
        assert seen == ([["one", "two"], 2] if missing <= 1 else [["one"], 1])


def test_append_message_costs_one_message_however_long_the_session_is(
    store: hansard.Store, place: str, elsewhere: Ask, written: Written
) -> None:
    log = Path(place, "sessions", f"{ID}.jsonl")
    with store.create(ID) as session:
        session.append(user("begin"))
        few = written(lambda: session.append(user("a message")))
        session.extend(users(*(f"message {n}" for n in range(3000))))
        session.history()
        before = log.read_bytes()
        file = log.stat().st_ino
        many = written(lambda: session.append(user("a message")))
    assert len(before) > 200_000
    assert max(few, many) < 20_000
    assert log.stat().st_ino == file
    assert log.read_bytes().startswith(before)
    assert elsewhere("store.head(id).messages", id=ID) == 3003


def test_append_message_to_disk_leaves_who_has_it_open_alone(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(ID) as session:
        mine = session.history()
        session.append(user("one"))
        mine = session.history()
        store.append(ID, user("two"))
        assert texts(mine) == ["one"]
        assert texts(session.history()) == ["one", "two"]  # at its next look
        with pytest.raises(Conflict):
            session.append(user("three"), expect=mine.seq)
    with pytest.raises(SessionNotFound):
        store.append("unknown", user("lost"))
    store.append("begun", user("hello"), create=True)
    for id in NO_IDS:
        with pytest.raises(InvalidId):
            store.append(id, user("lost"), create=True)
    seen = elsewhere(
        "{h.id: [m['content'] for m in store.read(h).history()] for h in store.list(empty=True)}"
    )
    assert seen == {ID: ["one", "two"], "begun": ["hello"]}


LISTED = "[[h.id, h.title, h.messages, h.updated_at, h.token_count, h.seq] for h in store.list()]"
"""What a list shows, from the index, and what a write brings up to date there."""


def test_whatever_is_appended_updates_the_index(store: hansard.Store, elsewhere: Ask) -> None:
    assert elsewhere(LISTED) == []
    with store.create(ID) as session:
        session.append(assistant("How can I help?"), time=MONDAY)
        store.append(ID, user("Build a login page"), time=MONDAY + timedelta(hours=1))
        one = elsewhere(LISTED)
        assert one == [[ID, "Build a login page", 2, "2026-05-25T11:00:00Z", None, 2]]
        session.history()
        session.checkpoint(users("Summary: a login page."), token_count=900)
        assert elsewhere(LISTED) == [[*one[0][:4], 900, 3]]
        session.event("text", {"x": 1}, event_id="e1")
        assert elsewhere(LISTED) == [[*one[0][:4], 900, 4]]
        session.event("text", {"x": 1}, event_id="e1")  # told again
        session.output("")
        assert elsewhere(LISTED) == [[*one[0][:4], 900, 4]]
        session.append(user("More"), time=MONDAY + timedelta(hours=2))
        assert elsewhere(LISTED) == [[ID, "Build a login page", 3, "2026-05-25T12:00:00Z", 900, 5]]


def test_append_checkpoint_is_what_a_resume_begins_with(store: hansard.Store, elsewhere: Ask) -> None:
    compacted = [user("Summary: they counted.")]
    with store.create(ID) as session:
        session.extend(users("one", "two", "three"), usages=[{"input_tokens": 5}, None, None])
        session.checkpoint(compacted, token_count=900)
        assert (session.history(), session.head.token_count) == (compacted, 900)  # it is up to date itself
        session.append(user("four"))
        assert texts(session.history()) == ["Summary: they counted.", "four"]
        for nothing, count in (([], 0), (compacted, -1)):  # what is counted is for the caller to say
            session.checkpoint(nothing, token_count=count)
            assert list(session.history()) == nothing
            assert session.history().token_count == count
        session.checkpoint([*compacted, user("four")], token_count=901)
        with pytest.raises(TypeError):
            session.checkpoint([], token_count="900")  # type: ignore[arg-type]
    seen = elsewhere(
        "[store.read(id).history(), store.read(id).history().token_count, store.head(id).usage.input_tokens,"
        " [r.data['content'] for r in store.read(id).records(kinds='message')]]",
        id=ID,
    )
    assert seen == [[*compacted, user("four")], 901, 5, ["one", "two", "three", "four"]]


def test_append_checkpoint_to_disk_touches_nothing_of_the_callers(
    store: hansard.Store, elsewhere: Ask
) -> None:
    begun(store, ID, "one", "two")
    compacted = [user("Summary: they counted.")]
    with store.open(ID, exclusive=False) as session, store.open(ID, exclusive=False) as other:
        mine = session.history()
        other.checkpoint(compacted, token_count=900)
        compacted[0]["content"] = "changed after it was written"
        assert texts(mine) == ["one", "two"]
        with pytest.raises(Conflict):  # it decided by what is not the history any more
            session.checkpoint([user("Summary: another.")])
    with pytest.raises(SessionNotFound):
        store.open("unknown", exclusive=False)
    assert texts(elsewhere("store.read(id).history()", id=ID)) == ["Summary: they counted."]


def test_a_tunnel_event_is_no_message(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(ID) as session:
        session.append(user("Hello"))
        before = session.head
        session.event("text", {"x": [1, None]}, event_id="e1", stream_id="s1")
        session.event("text", {"x": [1, None]}, event_id="e1", stream_id="s1")  # told again
        session.event("done", event_id="e2")
        session.event("", event_id="e3")
        after = session.head
        assert [getattr(after, name) for name in ("messages", "updated_at", "title", "preview")] == [
            getattr(before, name) for name in ("messages", "updated_at", "title", "preview")
        ]
        with pytest.raises(InvalidPayload):
            session.event("text", event_id="")
        with pytest.raises(Conflict):
            session.event("text", {"x": 2}, event_id="e1", stream_id="s1")
    seen = elsewhere("[store.read(id).history(), list(store.read(id).records(kinds='event'))]", id=ID)
    assert seen[0] == users("Hello")
    assert [(event["id"], event["data"]) for event in seen[1]] == [
        ("e1", {"stream_id": "s1", "type": "text", "data": {"x": [1, None]}}),
        ("e2", {"type": "done"}),
        ("e3", {"type": ""}),
    ]


def test_cleanup_removes_what_is_older_and_counts_it(store: hansard.Store, elsewhere: Ask) -> None:
    for days in (0, 30, 60, 90):
        begun(store, f"{days} days", "Hello", at=datetime.now(UTC) - timedelta(days=days, minutes=1))
    with store.open("90 days") as session:
        session.pin()
    with store.open("0 days"):  # the active one
        pass
    assert store.cleanup(older_than=datetime.min.replace(tzinfo=UTC)).count == 0
    done = store.cleanup(older_than=datetime.now(UTC) - timedelta(days=45))
    assert (done.count, done.ids, done.failed) == (1, ["60 days"], [])
    assert sorted(elsewhere("[h.id for h in store.list()]")) == ["0 days", "30 days", "90 days"]
    assert store.cleanup(older_than=timedelta(0)).count == 2
    assert elsewhere("[h.id for h in store.list()]") == ["90 days"]  # pinned
    for wrong in (timedelta(days=-1), datetime(2026, 1, 1), None):
        with pytest.raises(ValueError):
            store.cleanup(older_than=wrong)


def test_delete_removes_the_session_and_its_entry(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, ID, "Hello")
    begun(store, "other", "Hello")
    with store.open(ID, exclusive=False) as stale:
        assert store.delete(ID) is True
        with pytest.raises(SessionNotFound):
            stale.append(user("as if nothing had happened"))
    assert store.delete(ID) is store.delete("unknown") is store.delete("oth") is False
    for id in NO_IDS:
        with pytest.raises(InvalidId):
            store.delete(id)
    seen = elsewhere("[[h.id for h in store.list(empty=True)], refused(store.read, id)]", id=ID)
    assert seen == [["other"], "SessionNotFound"]
    assert [path.name for path in Path(place, "sessions").iterdir()] == ["other.jsonl"]


def test_the_folder_of_a_store(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    assert store.url == f"file:{place}"
    begun(store, ID, "Hello")
    assert elsewhere("[store.url, [h.id for h in hansard.open(store.url).list()]]") == [store.url, [ID]]


def test_a_session_without_user_interaction_is_not_kept(
    store: hansard.Store, place: str, elsewhere: Ask
) -> None:
    session = store.create(ID)
    session.save()
    assert elsewhere("refused(store.read, id)", id=ID) == "SessionNotFound"
    assert not list(Path(place).glob("sessions/*"))
    session.append(assistant("How can I help?"))
    session.save()
    assert elsewhere("[store.list(), [h.id for h in store.list(empty=True)]]") == [[], [ID]]
    session.close()
    with store.create("eager", eager=True):
        assert elsewhere("[h.id for h in store.list(empty=True)]") == ["eager"]
    assert elsewhere("[store.list(empty=True), refused(store.read, 'eager')]") == [[], "SessionNotFound"]
    assert not list(Path(place).glob("sessions/*"))


def test_meta_is_written_once_with_the_first_record(store: hansard.Store, elsewhere: Ask) -> None:
    def meta() -> Any:
        return elsewhere("[[r.kind for r in store.read(id).records()], store.head(id).title]", id=ID)

    with store.create(ID, title="Chosen") as session:
        assert elsewhere("store.list(empty=True)") == []
        session.append(user("Hello"))
        assert meta() == [["session", "message"], "Chosen"]
    with store.open(ID, create=True, title="Another"):  # it exists: nothing is written
        pass
    assert meta() == [["session", "message"], "Chosen"]


def test_a_session_is_exported_as_markdown(store: hansard.Store, elsewhere: Ask) -> None:
    said = [user("one"), assistant("two"), user("three")]
    with store.create(ID) as session:
        session.extend(said)
        session.truncate(1)
    view = store.read(ID)
    text = formats.render(view.head, view.records(), "markdown")
    assert all(message["content"] in text for message in said)  # also what the model sees no longer
    with pytest.raises(SessionNotFound):
        store.read("unknown")
    seen = elsewhere(
        "(lambda view: hansard.formats.render(view.head, view.records(), 'markdown'))(store.read(id))",
        id=ID,
    )
    assert seen == text


def test_list_has_the_newest_activity_first(store: hansard.Store, elsewhere: Ask) -> None:
    for place, id in enumerate("bca"):
        begun(store, id, "Hello", at=MONDAY + timedelta(hours=place))
    store.append("c", user("More"), time=MONDAY + timedelta(hours=9))
    with store.open("b") as session:
        session.rename("A title is no activity")
    assert [head.id for head in store.list(limit=None)] == ["c", "a", "b"]
    assert list(store.list(limit=0)) == []
    with pytest.raises(ValueError):
        store.list(limit=-1)
    seen = elsewhere("[[h.id, h.title, h.messages] for h in store.list(limit=None)]")
    assert seen == [["c", "Hello", 2], ["a", "Hello", 1], ["b", "A title is no activity", 1]]


def test_list_uses_the_index(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    for n in range(20):
        begun(store, f"s{n}", "Hello")
    store.close()
    assert elsewhere("len(store.list(limit=None))") == 20
    hear = "__import__('sys').addaudithook(lambda event, given: opened.append([event, str(given[:1])]))"
    told = elsewhere(f"(lambda opened: [{hear}, len(store.list(limit=None)), opened])([])")
    assert told[1] == 20
    assert not [given for event, given in told[2] if event == "open" and ".jsonl" in given]
    Path(place, "catalog.db").unlink()  # nothing that it cannot do without
    assert elsewhere("len(store.list(limit=None))") == 20


def test_list_of_an_empty_store_is_empty(store: hansard.Store, elsewhere: Ask) -> None:
    assert list(store.list()) == elsewhere("store.list(limit=None, empty=True)") == []


def test_load_reads_a_session(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, ID, "one", "two")
    assert texts(store.read(ID).history()) == ["one", "two"]
    with store.open(ID) as session:
        assert texts(session.history()) == ["one", "two"]
    for id in ("unknown", "2026", "../" + ID):
        with pytest.raises(SessionNotFound):
            store.read(id)
    for id in NO_IDS:
        with pytest.raises(InvalidId):
            store.open(id)
    log = Path(place, "sessions", f"{ID}.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"garbage\n" + b"".join(lines[1:]) + b'{"seq":3,"kind":"mess')  # torn
    seen = elsewhere("(lambda view: [view.history(), bool(view.damage)])(store.read(id))", id=ID)
    assert seen == [users("one", "two"), True]


def test_save_writes_the_whole_list(store: hansard.Store, elsewhere: Ask) -> None:
    mine = [user("one"), assistant("two")]
    with store.create(ID) as session:
        session.set_history(mine)
        mine.append(user("three"))
        session.set_history(mine)
        assert session.set_history(mine) is None  # the same list again is no write
        session.append(user("not synced yet"), durable=False)
        session.save()
        seen = elsewhere("[store.read(id).history(), store.head(id).seq]", id=ID)
        assert seen == [[*mine, user("not synced yet")], 4]
        session.set_history(mine[1:])
    assert elsewhere("store.read(id).history()", id=ID) == mine[1:]


def test_save_is_atomic(store: hansard.Store, place: str, elsewhere: Ask) -> None:
    begun(store, ID, "one", "two", "three")
    log = Path(place, "sessions", f"{ID}.jsonl")
    before = log.stat().st_size
    with store.open(ID) as session:
        session.set_history(users("other", "two", "and three", "four"))
        session.save()
    for missing in torn(log, before):
        new = "other|two|and three|four" if missing <= 1 else "one|two|three"
        assert "|".join(elsewhere("texts(store.read(id))", id=ID)) == new


def test_a_store_is_an_interface_with_several_engines(place: str, elsewhere: Ask) -> None:
    def used(store: hansard.Store) -> Any:
        with store.create(ID, title="Same") as session:
            session.extend(users("one", "two"))
            session.checkpoint(users("both"), token_count=9)
        begun(store, "old", "Hello", at=MONDAY - timedelta(days=900))
        found = [[head.id, head.title, head.messages] for head in store.list()]
        removed = store.cleanup(older_than=MONDAY - timedelta(days=800)).count
        return found, removed, store.delete("unknown"), store.read(ID).history(), len(store.list())

    with hansard.open("memory:") as memory, hansard.open(place) as files:
        assert (
            used(memory)
            == used(files)
            == ([[ID, "Same", 2], ["old", "Hello", 1]], 1, False, users("both"), 1)
        )
    assert texts(elsewhere("store.read(id).history()", id=ID)) == ["both"]


# -- Session and TunnelEvent


def test_a_session_has_its_fields(store: hansard.Store, elsewhere: Ask, tmp_path: Path) -> None:
    fields = {"title": "Login", "vendor": "zai", "endpoint": "main", "model": "glm-5"}
    with store.create(ID, workspace=tmp_path, **fields) as session:
        session.append(user("Hello"), time=MONDAY)
        session.event("text", {"x": 1}, event_id="e1")
    seen = elsewhere("store.head(id)", id=ID)
    assert {name: seen[name] for name in fields} == fields
    assert seen["id"] == ID
    assert seen["workspace"] == str(tmp_path.resolve())
    assert datetime.fromisoformat(seen["updated_at"]) == MONDAY
    assert datetime.fromisoformat(seen["created_at"]).utcoffset() == timedelta(0)
    assert elsewhere("[r.id for r in store.read(id).records(kinds='event')]", id=ID) == ["e1"]


def test_a_title_is_the_first_thing_said_or_the_one_chosen(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(ID) as session:
        assert session.head.title == ""
        session.append(assistant("How can I help?"))
        session.append({"role": "user", "content": [{"type": "image", "source": {"data": "…"}}]})
        assert session.head.title == ""
        session.append(user(" Build\n\n a  login page " + "é" * 80))
        title = session.head.title
        assert title.startswith("Build a login page é")
        assert (len(title), title[-1]) == (60, "…")
        session.rename("Login")
        session.append(user("Now the tests"))
    store.append("untitled", user(""), create=True)
    assert elsewhere("[store.head(id).title for id in ids]", ids=[ID, "untitled"]) == ["Login", ""]


def test_tunnel_events_complete_is_a_flag_in_meta(store: hansard.Store, elsewhere: Ask) -> None:
    with store.create(ID) as session:
        session.append(user("Hello"))
        assert session.head.meta.get("events_complete") is None
        session.update(meta={"events_complete": True, "color": "red"})
        session.update(meta={"color": "blue"})
        assert [head.id for head in store.list(meta={"events_complete": True})] == [ID]
    assert elsewhere("store.head(id).meta", id=ID) == {"events_complete": True, "color": "blue"}
    with store.open(ID) as session:
        session.update(unset=["meta.events_complete"])
    assert elsewhere("store.head(id).meta", id=ID) == {"color": "blue"}


def test_cost_is_kept_as_it_was_given(store: hansard.Store, elsewhere: Ask) -> None:
    cost = {"usd": 0.01, "by_day": {"2026-05-25": [1, None]}, "note": "<&>"}
    bill = {"input_tokens": 5, "output_tokens": 2, "cost": 0.25, "of": {"a vendor's own": "field"}}
    with store.create(ID) as session:
        session.append(user("Hello"))
        session.update(meta={"cost": cost})
        session.append(assistant("Hi!"), usage=bill)
        session.checkpoint([])
    seen = elsewhere(
        "[store.head(id).meta['cost'], [r.usage for r in store.read(id).records(kinds='message')],"
        " store.head(id).usage.total_tokens, store.head(id).usage.cost]",
        id=ID,
    )
    assert seen[:3] == [cost, [None, bill], 7]
    assert float(seen[3]) == 0.25


@pytest.mark.parametrize(
    ("payload", "is_input"),
    [
        (user("Hello"), True),
        ({"role": "user", "content": [{"type": "text", "text": "Hello"}]}, True),
        (user(""), False),
        (user(" \n"), False),
        (assistant("Hello"), False),
        ({"role": "system", "content": "Be brief."}, False),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a.py"}]},
            False,
        ),
        ({"role": "user", "content": [{"type": "tool_result", "tool_id": "1", "output": "a.py"}]}, False),
        (
            {"role": "user", "content": [{"type": "image", "image_mime": "image/png", "image_data": "…"}]},
            True,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_user_interaction(
    store: hansard.Store, elsewhere: Ask, payload: dict[str, Any], is_input: bool
) -> None:
    with store.create(ID) as session:
        assert session.head.has_user_input is False
        session.append(payload)
        assert session.head.has_user_input is is_input
        assert elsewhere("store.head(id).has_user_input", id=ID) is is_input
    assert bool(elsewhere("store.list()")) is bool(elsewhere("store.list(empty=True)")) is is_input


def test_user_interaction_is_stored(store: hansard.Store, elsewhere: Ask) -> None:
    begun(store, ID, "Hello")
    store.append("bare", assistant("Hi!"), create=True)
    seen = elsewhere("{h.id: h.has_user_input for h in store.list(empty=True)}")
    assert seen == {ID: True, "bare": False}


def test_a_tunnel_event_has_its_fields(store: hansard.Store, elsewhere: Ask) -> None:
    data: list[Any] = [{"a": [1, {"b": None}]}, [], "text", 0, False]
    with store.create(ID) as session:
        session.append(user("Hello"))
        for place, value in enumerate(data):
            session.event("tool.call", value, event_id=f"e{place}", stream_id="s1" if place else "")
    seen = elsewhere("[[r.id, r.data] for r in store.read(id).records(kinds='event')]", id=ID)
    assert [id for id, _ in seen] == ["e0", "e1", "e2", "e3", "e4"]
    assert [event["data"] for _, event in seen] == data
    assert [event["stream_id"] for _, event in seen] == ["", "s1", "s1", "s1", "s1"]
    assert {event["type"] for _, event in seen} == {"tool.call"}


def test_threads_may_share_a_session(store: hansard.Store, elsewhere: Ask) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with store.create(ID) as session, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda place: session.append(user(str(place)), durable=False), range(200)))
        session.save()
        seen = elsewhere("[store.head(id).messages, [m['content'] for m in store.read(id).history()]]", id=ID)
    assert seen[0] == 200
    assert sorted(map(int, seen[1])) == list(range(200))
