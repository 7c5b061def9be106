"""`doctor(repair=True)` on a folder of logs: what can be read stays, what cannot is kept aside."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hansard
from hansard.engines import Finding
from hansard.engines.files import HansardWarning
from hansard.records import Record
from hansard.store import Report, Store
from hansard.testing.chat import texts, user, users


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with hansard.open(tmp_path / "store") as store:
        yield store


def begin(store: Store, id: str = "a") -> None:
    with store.create(id) as session:
        for n in range(5):
            session.append(user(f"message {n}"), id=f"key-{n}")
        session.extend(users("x", "y", "z"))
        session.checkpoint([user("so far")])
        session.append(user("last"))


def log(store: Store, id: str = "a") -> Path:
    return Path(store.url.removeprefix("file:")) / "sessions" / f"{id}.jsonl"


def change(path: Path, edit: Callable[[list[bytes]], Sequence[bytes]]) -> bytes:
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    return path.read_bytes()


def said(store: Store, id: str = "a") -> list[tuple[Any, ...]]:
    """What a reader gets, without what only stands for something else."""
    records = [record for record in store.read(id).records() if record.kind != "compacted" and record.seq]
    return [(r.seq, r.kind, r.data, r.id, r.at, r.batch) for r in records]


def aside(store: Store) -> list[Path]:
    return sorted((log(store).parent.parent / "aside").glob("*"))


def of_kind(report: Report, *kinds: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind in kinds]


DAMAGES: dict[str, Callable[[list[bytes]], Sequence[bytes]]] = {
    "a byte": lambda lines: [*lines[:2], lines[2].replace(b"message 1", b"message 7"), *lines[3:]],
    "garbage": lambda lines: [*lines[:3], b"\x00\xffgarbage\n", *lines[4:]],
    "a line is missing": lambda lines: [*lines[:3], *lines[4:]],
    "a part of a batch is missing": lambda lines: [*lines[:7], *lines[8:]],
    "the first line": lambda lines: [b"garbage\n", *lines[1:]],
    "the first lines": lambda lines: lines[3:],
    "line ends": lambda lines: [*lines[:2], lines[2][:-1] + b" \r\n", *lines[3:]],
    "a lost newline": lambda lines: [*lines[:2], lines[2][:-1], *lines[3:]],
    "a line twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "swapped lines": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "blank lines": lambda lines: [*lines[:4], b"\n", b"\n", *lines[4:]],
}


@pytest.mark.rule("C2", "C4")
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_can_be_read_of_a_damaged_log_becomes_a_sound_one(store: Store, damage: str) -> None:
    begin(store)
    damaged = change(log(store), DAMAGES[damage])
    before = said(store)
    history = texts(store.read("a").history())
    found = of_kind(store.doctor(), "damage")
    assert found
    assert log(store).read_bytes() == damaged  # looking changes nothing
    report = store.doctor(repair=True)
    assert all(finding.repaired for finding in of_kind(report, "damage", "catalog"))
    assert said(store) == before
    assert texts(store.read("a").history()) == history
    assert {finding.kind for finding in store.doctor().findings} == {"aside"}
    assert store.read("a").damage == []
    (copy,) = aside(store)
    assert copy.read_bytes() == damaged
    assert store.append("a", user("on")).seq == before[-1][0] + 1


def as_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@pytest.mark.rule("C2", "C4")
@settings(max_examples=60)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 2000), st.sampled_from(("flip", "cut", "insert", "drop line", "nul"))),
        min_size=1,
        max_size=4,
    )
)
@example(edits=[(0, "cut"), (1153, "cut")])  # what is left of two lines is no part of a batch
@example(
    edits=[(0, "cut"), (144, "flip"), (1155, "cut")]
)  # behind what cannot be read all is taken as it reads
@example(edits=[(1371, "flip")])  # the first byte of the last line: its end is as the catalog knows it
def test_no_damage_keeps_a_log_from_being_repaired_and_no_good_record_is_lost(
    edits: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with hansard.open(tmp_path_factory.mktemp("repair") / "store") as store:
        begin(store)
        data = bytearray(log(store).read_bytes())
        for at, edit in edits:
            at %= len(data)
            if edit == "flip":
                data[at] ^= 0x21
            elif edit == "cut":
                del data[at : at + 30]
            elif edit == "insert":
                data[at:at] = b"\r\n{}"
            elif edit == "nul":
                data[at : at + 16] = bytes(16)
            else:
                lines = as_lines(bytes(data))
                del lines[at % len(lines)]
                data = bytearray(b"".join(lines) or b"\n")
        log(store).write_bytes(data)
        try:
            before = said(store)
        except hansard.HansardError:
            before = None
        report = store.doctor(repair=True)
        assert len(of_kind(report, "unreadable")) <= 1
        if before is None or of_kind(report, "unreadable"):
            return
        assert said(store) == before
        assert not of_kind(store.doctor(), "damage", "torn", "catalog")
        store.append("a", user("on"))
        assert store.read("a").history()[-1] == user("on")


@pytest.mark.rule("C2", "H9")
def test_a_record_behind_a_missing_one_is_read_backwards_too(store: Store) -> None:
    """Also where a place that the catalog knows begins right behind it."""
    with store.create("a") as session:
        for _ in range(3):
            session.append(user("is missing"))
            session.append(user("x" * 70_000))
            session.extend(users(*("y" * 70_000 for _ in range(5))))
    change(log(store), lambda lines: [line for line in lines if b"is missing" not in line])
    forwards = [record.seq for record in store.read("a").records()]
    assert forwards == [0, *range(2, 8), *range(9, 15), *range(16, 22)]
    assert [record.seq for record in store.read("a").records(reverse=True)] == forwards[::-1]
    assert len(store.read("a").history(17)) == 17


@pytest.mark.rule("C4")
def test_members_of_newer_versions_survive_a_repair(store: Store) -> None:
    begin(store)
    change(log(store), DAMAGES["garbage"])
    change(
        log(store),
        lambda lines: [*lines[:5], lines[5].replace(b',"at":', b',"mood":"calm","at":', 1), *lines[6:]],
    )
    store.doctor(repair=True)
    lines = log(store).read_bytes().splitlines()
    records = list(store.read("a").records())
    assert {finding.kind for finding in store.doctor().findings} == {"aside"}
    assert [r.extra for r in records if r.extra] == [{"mood": "calm"}] * sum(
        b'"mood"' in line for line in lines
    )


@pytest.mark.rule("C1", "C4")
def test_a_torn_tail_is_set_aside_and_a_log_that_never_began_is_taken_away(store: Store) -> None:
    begin(store)
    with log(store).open("ab") as file:
        file.write(b'{"kind":"mess')
    log(store, "b").write_bytes(b'{"kind":"ses')
    before = said(store)
    report = store.doctor(repair=True)
    assert {finding.kind: finding.repaired for finding in of_kind(report, "torn", "unborn")} == {
        "torn": True,
        "unborn": True,
    }
    assert said(store) == before
    assert not log(store, "b").exists()
    assert sorted(path.read_bytes() for path in aside(store)) == [b'{"kind":"mess', b'{"kind":"ses']


@pytest.mark.rule("C4", "E3")
def test_the_documents_of_a_session_whose_log_is_lost_are_set_aside(store: Store) -> None:
    begin(store)
    with store.open("a") as session:
        session.documents.put("screen", b"pixels")
    log(store).write_bytes(b'{"kind":"ses')
    store.doctor(repair=True)
    assert not log(store).exists()
    torn, documents = sorted(aside(store), key=Path.is_dir)
    assert torn.read_bytes() == b'{"kind":"ses'
    assert [path.read_bytes().endswith(b"pixels") for path in documents.iterdir()] == [True]


@pytest.mark.rule("C2", "H9")
def test_a_vacuumed_log_that_lost_its_end_has_a_history_again_with_the_next_change(store: Store) -> None:
    begin(store)
    store.vacuum("a", drop_history=True)
    change(log(store), lambda lines: lines[:2])
    with pytest.raises(hansard.Conflict):
        store.read("a").history()  # nobody knows any more what it was
    with store.open("a") as session:
        session.checkpoint([user("anew")])
    store.append("a", user("on"))
    assert texts(store.read("a").history()) == ["anew", "on"]


@pytest.mark.rule("C4")
def test_what_is_lost_before_a_stretch_that_was_taken_out_ends_where_that_begins(store: Store) -> None:
    begin(store)
    store.vacuum("a", drop_history=True)
    with store.open("a") as session:
        session.rename("A title")
        session.append(user("one"))
        session.append(user("two"))
        session.checkpoint([user("so far, so good")])
    store.vacuum("a", drop_history=True)
    title = next(n for n, line in enumerate(log(store).read_bytes().splitlines()) if b"A title" in line)
    change(log(store), lambda lines: [*lines[:title], *lines[title + 1 :]])
    store.doctor(repair=True)
    taken = [record for record in store.read("a").records() if record.kind == "compacted"]
    stretches = [range(record.data["first"], record.seq + 1) for record in taken]
    assert [seq for stretch in stretches for seq in stretch] == sorted({seq for s in stretches for seq in s})
    assert {finding.kind for finding in store.doctor().findings} == {"aside"}


@pytest.mark.rule("C4", "L2")
def test_a_preview_from_before_what_was_lost_stays(store: Store) -> None:
    with store.create("a") as session:
        session.append(user("what is asked"))
        for n in range(3):
            session.append({"role": "assistant", "content": f"answer {n}"})
    change(log(store), DAMAGES["garbage"])
    store.doctor(repair=True)
    assert store.head("a").preview == "what is asked"
    assert {finding.kind for finding in store.doctor().findings} == {"aside"}


@pytest.mark.rule("C2", "C3")
def test_a_session_with_a_long_id_is_known_by_its_catalog_where_its_first_line_is_lost(store: Store) -> None:
    id = "Ä" * 200
    begin(store, id)
    (path,) = log(store).parent.glob("*=~*")
    change(path, DAMAGES["the first line"])
    before = said(store, id)
    assert [head.id for head in store.list()] == [id]
    assert all(finding.repaired for finding in of_kind(store.doctor(repair=True), "damage"))
    assert said(store, id) == before
    assert {finding.kind for finding in store.doctor().findings} == {"aside"}


@pytest.mark.filterwarnings("ignore:session .* cannot be read")
@pytest.mark.rule("C2", "C3")
def test_a_session_with_a_long_id_whose_log_begins_like_another_one_is_found_by_the_doctor(
    store: Store,
) -> None:
    id = "Ä" * 200
    begin(store, id)
    begin(store, "b")
    (path,) = log(store).parent.glob("*=~*")
    damaged = change(
        path, lambda lines: [*log(store, "b").read_bytes().splitlines(keepends=True), *lines[3:]]
    )
    for repair in (False, True):
        (finding,) = store.doctor(repair=repair).findings
        assert (finding.kind, finding.session) == ("unreadable", id)
        assert "the log of session 'b'" in finding.detail
    assert path.read_bytes() == damaged


@pytest.mark.rule("C2", "C3")
def test_a_session_with_a_long_id_that_nobody_knows_is_read_by_whoever_names_it(tmp_path: Path) -> None:
    id = "Ä" * 200
    with hansard.open(tmp_path / "store") as store:
        begin(store, id)
        (path,) = log(store).parent.glob("*=~*")
        change(path, DAMAGES["the first line"])
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
    with hansard.open(tmp_path / "store") as store:
        (finding,) = store.doctor().findings
        assert (finding.kind, finding.place) == ("unreadable", str(path))
        assert len(said(store, id)) == 10
        store.append(id, user("on"))
    with hansard.open(tmp_path / "store") as store:
        store.doctor(repair=True)
        assert {finding.kind for finding in store.doctor().findings} == {"aside"}
        assert len(said(store, id)) == 11


@pytest.mark.rule("C4", "W11")
def test_a_log_that_somebody_has_open_is_left_as_it_is(store: Store) -> None:
    begin(store)
    damaged = change(log(store), DAMAGES["garbage"])
    with store.open("a"):
        (finding,) = {(f.repaired, f.remedy) for f in of_kind(store.doctor(repair=True), "damage")}
        assert not finding[0]
        assert "is open by process" in finding[1]
        assert log(store).read_bytes() == damaged
    assert all(finding.repaired for finding in of_kind(store.doctor(repair=True), "damage"))


@pytest.mark.rule("C4", "W11")
def test_a_shared_handle_goes_on_across_a_repair(store: Store) -> None:
    begin(store)
    with store.open("a", exclusive=False) as shared:
        shared.history()
        change(log(store), DAMAGES["a line is missing"])
        store.doctor(repair=True)
        last = shared.append(user("on"))
        assert texts(shared.history())[-1] == "on"
    records: list[Record] = list(store.read("a").records())
    assert records[-1].seq == last.seq
    assert not of_kind(store.doctor(), "damage", "torn", "catalog")


@pytest.mark.rule("C3", "C4")
def test_a_row_of_the_catalog_that_is_wrong_is_made_anew(store: Store) -> None:
    begin(store)
    begin(store, "b")
    store.list()
    change(log(store, "b"), lambda lines: [*lines[:1], *lines[2:]])
    assert of_kind(store.doctor(), "catalog")
    assert all(finding.repaired for finding in of_kind(store.doctor(repair=True), "catalog"))
    assert not of_kind(store.doctor(), "catalog")
    assert {head.id: head.messages for head in store.list()} == {"a": 9, "b": 8}


@pytest.mark.rule("C3")
@pytest.mark.parametrize("instead", ["a folder", "a pipe", "a link to nothing", "zeros"])
@pytest.mark.parametrize("beside", ["", "catalog.lock", "catalog.check"])
def test_whatever_stands_in_the_place_of_the_catalog_no_session_is_hidden(
    tmp_path: Path, instead: str, beside: str
) -> None:
    root = tmp_path / "store"
    with hansard.open(root) as store:
        begin(store)
    path = root / "catalog.db"
    size = path.stat().st_size
    path.unlink()
    if instead == "a folder":
        path.mkdir()
    elif instead == "a pipe":
        os.mkfifo(path)
    elif instead == "zeros":
        path.write_bytes(bytes(size))
    else:
        path.symlink_to("nothing")
    if beside:
        (root / beside).unlink(missing_ok=True)
        (root / beside).mkdir()
    with hansard.open(root) as store:
        assert [head.id for head in store.list()] == ["a"]
        assert len(said(store)) == 10
        assert not of_kind(store.doctor(repair=True), "damage", "unreadable")
        assert log(store).exists()


@pytest.mark.rule("C3")
def test_a_catalog_that_breaks_while_it_is_compared_with_the_logs_is_compared_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with hansard.open(root) as store:
        for id in ("a", "b", "c"):
            begin(store, id)
        store.list()
    change(root / "sessions/c.jsonl", lambda lines: lines[:-1])
    with sqlite3.connect(root / "catalog.db") as catalog:
        catalog.execute("UPDATE places SET link = link + 1")
    catalog.close()
    (root / "catalog.check").write_text("somebody wrote")
    with hansard.open(root) as store:
        assert {head.id: head.messages for head in store.list()} == {"a": 9, "b": 9, "c": 8}


@pytest.mark.rule("C3")
def test_a_catalog_of_which_not_even_the_tables_can_be_read_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with hansard.open(root) as store:
        begin(store)
    with sqlite3.connect(root / "catalog.db") as catalog:
        catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    catalog.close()
    path = root / "catalog.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CR\xceATE TABLE"))
    with hansard.open(root) as store:
        assert [head.id for head in store.list()] == ["a"]
        assert len(said(store)) == 10


@pytest.mark.rule("C4", "E3")
@pytest.mark.parametrize("member", ["time", "expires"])
def test_a_document_whose_time_lies_in_no_zone_is_illegible_and_kept_aside(store: Store, member: str) -> None:
    begin(store)
    with store.open("a") as session:
        session.documents.put("screen", b"pixels", expires=timedelta(days=1))
        path = log(store).parent.parent / "documents/a/screen"
        raw = re.sub(rb'("%s":"[^"]*)Z"' % member.encode(), rb'\1"', path.read_bytes())
        path.write_bytes(raw)
        with pytest.raises(hansard.Damaged):
            session.documents.get("screen")
        assert session.documents.list() == ["screen"]
        with pytest.warns(HansardWarning):
            session.documents.put("screen", b"anew")
        assert [copy.read_bytes() for copy in aside(store)] == [raw]


@pytest.mark.rule("C4", "E10")
def test_a_blob_that_was_altered_is_set_aside_and_one_that_is_missing_is_named(store: Store) -> None:
    digest = store.blobs.put(b"a picture")
    store.append("a", user("look"), create=True, blobs=[digest, "0" * 64])
    path = log(store).parent.parent / "blobs" / digest[:2] / digest
    path.write_bytes(b"another")
    with pytest.raises(hansard.Damaged):
        store.blobs.get(digest)
    report = store.doctor(repair=True)
    altered, *missing = of_kind(report, "blob")
    assert altered.repaired
    assert [finding.session for finding in missing] == ["a", "a"]
    assert store.blobs.get(digest) is None
    assert [copy.read_bytes() for copy in aside(store)] == [b"another"]
    store.blobs.put(b"a picture")
    assert store.blobs.get(digest) == b"a picture"


@pytest.mark.rule("C4")
def test_what_a_crash_left_half_written_goes_when_it_is_old(store: Store) -> None:
    begin(store)
    root = log(store).parent.parent
    left = [root / "sessions/a.jsonl~tmp", root / "names/active.json~tmp"]
    for path in left:
        path.write_bytes(b"half")
    (root / "documents/gone").mkdir(parents=True, mode=0o700)
    (root / "documents/gone/snap").write_bytes(b"x")
    assert not of_kind(store.doctor(repair=True), "leftover")  # somebody may be writing it just now
    hours_ago = time.time() - 7200
    for path in (*left, root / "documents/gone"):
        os.utime(path, (hours_ago, hours_ago))
    assert {finding.repaired for finding in of_kind(store.doctor(), "leftover")} == {False}
    assert all(path.exists() for path in left)
    assert len(of_kind(store.doctor(repair=True), "leftover")) == 3
    assert not any(path.exists() for path in left)
    assert not (root / "documents/gone").exists()
    assert not of_kind(store.doctor(), "leftover", "foreign")
