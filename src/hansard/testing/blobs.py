"""E10: bytes that are kept once, and swept when nothing names them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from hansard.blobs import Blobs
from hansard.errors import HansardError, InvalidPayload, ReadOnlyStore
from hansard.store import Store
from hansard.testing.chat import assistant, user
from hansard.testing.world import World, hear, say

WEEK = timedelta(days=7)
NONE = timedelta(0)


def _later() -> datetime:
    return datetime.now(UTC) + WEEK


def _aged(world: World, **options: Any) -> Store:
    """A store on whose clock all that was put just now is old."""
    return world.other(clock=_later, **options)


def _named_in_another_process(store: Store, id: str, digest: str) -> None:
    with store.open(id, create=True) as session:
        session.append(user("a"))
        session.append({"image": digest}, durable=False)
        say("named")
        hear()


def _put(store: Store, text: str) -> str:
    return store.blobs.put(text.encode())


@pytest.mark.rule("E10")
@pytest.mark.parametrize("data", [b"", b"a picture", bytes(range(256)) * 9000], ids=["empty", "text", "long"])
def test_a_blob_is_found_by_the_digest_of_its_bytes(world: World, data: bytes) -> None:
    store = world.store()
    digest = store.blobs.put(data)
    assert digest == sha256(data).hexdigest()
    assert store.blobs.get(digest) == world.other().blobs.get(digest) == data
    assert world.reopened().blobs.get(digest) == data


@pytest.mark.rule("E10")
def test_putting_the_same_bytes_again_changes_nothing(world: World) -> None:
    store = world.store()
    first = store.blobs.put(b"x")
    assert store.blobs.put(b"x") == world.other().blobs.put(bytearray(b"x")) == first
    assert store.blobs.put(memoryview(b"axbx")[1::2]) == sha256(b"xx").hexdigest()
    assert store.blobs.get(first) == b"x"
    assert len(_aged(world).blobs.sweep(dry_run=True)) == 2


@pytest.mark.rule("E10")
@pytest.mark.parametrize("digest", ["0" * 64, "", "x", "../../x", "0" * 63, "A" * 64, "\ud800", "0" * 65])
def test_what_is_no_digest_of_a_blob_names_none(world: World, digest: str) -> None:
    store = world.store()
    store.blobs.put(b"x")
    assert store.blobs.get(digest) is None


@pytest.mark.rule("E10")
def test_a_blob_is_bytes_and_its_name_a_text(world: World) -> None:
    store = world.store()
    for data in ("text", None, 7, [1]):
        with pytest.raises(TypeError):
            store.blobs.put(data)  # type: ignore[arg-type]
    for digest in (None, 7, b"0" * 64):
        with pytest.raises(TypeError):
            store.blobs.get(digest)  # type: ignore[arg-type]


@pytest.mark.rule("E10")
def test_another_process_puts_and_gets_blobs(world: World) -> None:
    digest = world.elsewhere(_put, "theirs")
    assert world.store().blobs.get(digest) == b"theirs"
    assert world.store().blobs.put(b"theirs") == digest


@pytest.mark.rule("E10")
def test_a_record_names_its_blobs(world: World) -> None:
    store = world.store()
    digests = [store.blobs.put(text) for text in (b"a", b"b")]
    with store.create("s") as session:
        session.append(user("a"), blobs=digests)
        session.append({"x": 1}, kind="mine.own", blobs=digests[:1])
    assert [record.blobs for record in world.reopened().read("s").records(after=0)] == [
        tuple(digests),
        (digests[0],),
    ]


@pytest.mark.rule("E10", "W4")
@pytest.mark.parametrize("wrong", ["", "x", "0" * 63, "A" * 64, 7, None, b"0" * 64], ids=repr)
def test_a_record_names_blobs_by_their_digests(world: World, wrong: Any) -> None:
    with world.store().create("s") as session:
        with pytest.raises(InvalidPayload, match=r"blobs\[1\]"):
            session.append(user("a"), blobs=["0" * 64, wrong])
        assert session.seq == -1


def _by_blobs(store: Store, digest: str) -> None:
    store.append("s", user("a"), create=True, blobs=[digest])


def _by_message(store: Store, digest: str) -> None:
    store.append("s", {"role": "user", "content": [{"image": f"blob:{digest}.png"}]}, create=True)


def _by_kind(store: Store, digest: str) -> None:
    with store.create("s") as session:
        session.append({"state": digest}, kind="mine.own")


def _by_event(store: Store, digest: str) -> None:
    with store.create("s") as session:
        session.event("screen", {"image": digest}, event_id="e")


def _by_output(store: Store, digest: str) -> None:
    with store.create("s") as session:
        session.output(f"wrote {digest}")


def _by_meta(store: Store, digest: str) -> None:
    store.append("s", user("a"), create=True)
    with store.open("s") as session:
        session.update(meta={"avatar": digest})


def _by_head(store: Store, digest: str) -> None:
    with store.create("s", meta={"avatar": digest}) as session:
        session.append(user("a"))


def _by_checkpoint(store: Store, digest: str) -> None:
    with store.create("s") as session:
        session.append(user("a"))
        session.checkpoint([user(f"see {digest}")])


def _by_what_was_hidden(store: Store, digest: str) -> None:
    _by_blobs(store, digest)
    with store.open("s") as session:
        session.clear()


def _by_document(store: Store, digest: str) -> None:
    store.append("s", user("a"), create=True)
    with store.open("s") as session:
        session.documents.put("screen", b"\xff\x00" + digest.encode() + b"\xff")


def _by_state(store: Store, digest: str) -> None:
    store.state("settings").set("avatar", {"image": digest})


def _by_child(store: Store, digest: str) -> None:
    store.append("s", user("a"), create=True)
    with store.open("s") as session, session.sub("a") as child:
        child.append(assistant("x"), blobs=[digest])


def _by_fork(store: Store, digest: str) -> None:
    _by_blobs(store, digest)
    store.fork("s", id="f").close()
    store.delete("s")


def _by_unlisted(store: Store, digest: str) -> None:
    store.append("s", assistant(digest), create=True)


def _by_run(store: Store, digest: str) -> None:
    store.append("s", user("abcdef" + digest + digest), create=True)


NAMED: dict[str, Callable[[Store, str], None]] = {
    "blobs of a record": _by_blobs,
    "a message": _by_message,
    "a kind of its own": _by_kind,
    "an event": _by_event,
    "output": _by_output,
    "metadata": _by_meta,
    "the head as it was created": _by_head,
    "a checkpoint": _by_checkpoint,
    "a message that was hidden": _by_what_was_hidden,
    "a document": _by_document,
    "a state": _by_state,
    "a child": _by_child,
    "a fork": _by_fork,
    "a session that no list has": _by_unlisted,
    "among other digits": _by_run,
}
"""What may name a blob."""


@pytest.mark.rule("E10")
@pytest.mark.parametrize("name", NAMED)
def test_what_anything_names_is_never_swept(world: World, name: str) -> None:
    store = world.store()
    needed, other = store.blobs.put(b"needed"), store.blobs.put(b"other")
    NAMED[name](store, needed)
    aged = _aged(world)
    assert [blob.digest for blob in aged.blobs.sweep(older_than=NONE)] == [other]
    assert (store.blobs.get(needed), store.blobs.get(other)) == (b"needed", None)
    assert aged.blobs.sweep() == []


@pytest.mark.rule("E10")
def test_what_another_handle_has_just_named_is_not_swept(world: World) -> None:
    store = world.store()
    digest = store.blobs.put(b"needed")
    with store.create("s") as session:
        session.append(user("a"))
        session.append({"image": digest}, durable=False)
        assert _aged(world).blobs.sweep() == []
    assert store.blobs.get(digest) == b"needed"


@pytest.mark.rule("E10")
def test_what_another_process_has_just_named_is_not_swept(world: World) -> None:
    store = world.store()
    digest = store.blobs.put(b"needed")
    with world.beside(_named_in_another_process, "s", digest) as process:
        assert process.hear() == "named"
        assert _aged(world).blobs.sweep() == []
        process.tell("end")
        process.result()
    assert store.blobs.get(digest) == b"needed"


@pytest.mark.rule("E10")
def test_a_blob_is_swept_when_the_last_that_named_it_is_gone(world: World) -> None:
    store = world.store()
    digest = store.blobs.put(b"x")
    for id in ("a", "b"):
        store.append(id, user(digest), create=True)
    store.state("settings").set("avatar", digest)
    aged = _aged(world)
    for id in ("a", "b"):
        store.delete(id)
        assert aged.blobs.sweep() == []
    store.state("settings").delete("avatar")
    swept = aged.blobs.sweep()
    assert [(blob.digest, blob.size) for blob in swept] == [(digest, 1)]
    assert store.blobs.get(digest) is None
    assert store.blobs.put(b"x") == digest
    assert store.blobs.get(digest) == b"x"


@pytest.mark.rule("E10", "H8")
def test_what_only_vacuumed_messages_named_is_swept(world: World) -> None:
    store = world.store()
    old, new = store.blobs.put(b"old"), store.blobs.put(b"new")
    with store.create("s") as session:
        session.append(user("a"), blobs=[old], id="k")
        session.append(user("b"), blobs=[new])
        session.truncate(1)
        session.append(user("c"))
    aged = _aged(world)
    assert aged.blobs.sweep() == []
    store.vacuum("s", drop_history=True)
    assert [blob.digest for blob in aged.blobs.sweep()] == [old]
    assert store.blobs.get(new) == b"new"


@pytest.mark.rule("E10")
def test_what_was_put_within_a_day_is_not_swept_though_nothing_names_it(world: World) -> None:
    store = world.store()
    digest = store.blobs.put(b"x")
    assert store.blobs.sweep() == []
    assert store.blobs.get(digest) == b"x"
    hours = [23, 25]
    clocks = [lambda h=h: datetime.now(UTC) + timedelta(hours=h) for h in hours]
    assert world.other(clock=clocks[0]).blobs.sweep() == []
    assert len(world.other(clock=clocks[1]).blobs.sweep()) == 1


@pytest.mark.rule("E10")
def test_a_dry_run_sweeps_nothing_and_says_what_would_go(world: World) -> None:
    store = world.store()
    digests = sorted(store.blobs.put(text) for text in (b"a", b"bb", b"ccc"))
    aged = _aged(world)
    told = aged.blobs.sweep(dry_run=True)
    assert [blob.digest for blob in told] == digests
    assert sum(blob.size for blob in told) == 6
    assert all(store.blobs.get(digest) for digest in digests)
    assert aged.blobs.sweep() == told


def _touched(store: Store, digest: str) -> datetime:
    return next(blob.touched for blob in store.blobs.sweep(dry_run=True) if blob.digest == digest)


@pytest.mark.rule("E10")
def test_what_is_put_again_is_safe_for_another_day(world: World) -> None:
    store, aged = world.store(), _aged(world)
    digest, other = store.blobs.put(b"x"), store.blobs.put(b"y")
    before = max(_touched(aged, digest), _touched(aged, other))
    deadline = time.monotonic() + 5
    while _touched(aged, digest) <= before:
        assert time.monotonic() < deadline, "to put it again is nothing that is seen"
        store.blobs.put(b"x")
    then = world.other(clock=lambda: before + timedelta(microseconds=1))
    assert [blob.digest for blob in then.blobs.sweep(older_than=NONE)] == [other]
    assert store.blobs.get(digest) == b"x"


@pytest.mark.rule("E10")
def test_what_is_put_while_others_sweep_is_there_when_the_call_returns(world: World) -> None:
    store, aged = world.store(), _aged(world)
    old = [store.blobs.put(f"{i}".encode()) for i in range(40)]
    before = max(_touched(aged, digest) for digest in old) + timedelta(microseconds=1)
    while _touched(aged, store.blobs.put(b"tick")) <= before:
        pass
    failed: list[BaseException] = []
    done = threading.Event()

    def sweep() -> None:
        then = world.other(clock=lambda: before)
        try:
            while not done.is_set():
                then.blobs.sweep(older_than=NONE)
        except HansardError as error:
            failed.append(error)

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    putters = [store, world.other()]
    for _ in range(3):
        for i in range(40):
            putter = putters[i % 2]
            digest = putter.blobs.put(f"{i}".encode())
            assert digest == old[i]
            putter.append("s", user(digest), create=True)
            assert store.blobs.get(digest) == f"{i}".encode()
    done.set()
    for sweeper in sweepers:
        sweeper.join()
    assert not failed
    assert [digest for digest in old if store.blobs.get(digest) is None] == []
    assert [blob.digest for blob in aged.blobs.sweep(older_than=NONE)] == [sha256(b"tick").hexdigest()]


@pytest.mark.rule("E10", "L5")
def test_cleanup_sweeps_what_nothing_names(world: World) -> None:
    store = world.store()
    kept, gone = store.blobs.put(b"kept"), store.blobs.put(b"gone")
    store.append("s", user(kept), create=True)
    aged = _aged(world)
    aged.cleanup(keep_last=9, dry_run=True)
    assert store.blobs.get(gone) == b"gone"
    assert aged.cleanup(keep_last=9).count == 0
    assert (store.blobs.get(kept), store.blobs.get(gone)) == (b"kept", None)


@pytest.mark.rule("E10")
def test_in_a_store_that_is_only_read_blobs_are_only_read(world: World) -> None:
    world.needs("survives")
    digest = world.store().blobs.put(b"x")
    store = Store(world.new_engine(readonly=True), let_go=lambda: None, clock=_later)
    assert store.blobs.get(digest) == b"x"
    with pytest.raises(ReadOnlyStore):
        store.blobs.put(b"y")
    with pytest.raises(ReadOnlyStore):
        store.blobs.sweep()
    assert world.store().blobs.get(digest) == b"x"


@pytest.mark.rule("E10")
def test_a_sweep_of_what_is_older_than_all_time_takes_nothing(world: World) -> None:
    store = _aged(world)
    digest = store.blobs.put(b"a picture")
    assert store.blobs.sweep(older_than=timedelta.max) == []
    assert store.blobs.get(digest) == b"a picture"


@pytest.mark.rule("E10")
@pytest.mark.parametrize("where", ["record", "document", "state"])
def test_who_names_a_blob_while_others_sweep_waits_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A sweep has maybe gone past what names it now."""
    store = _aged(world)
    store.append("s", user("Hello"), create=True)
    digest = store.blobs.put(b"a picture")
    look, named = Blobs._texts, threading.Event()

    def name() -> None:
        if where == "record":
            store.append("s", user("look"), blobs=[digest])
        elif where == "state":
            store.state("settings").set("picture", digest)
        else:
            with store.open("s", exclusive=False) as session:
                session.documents.put("picture", digest.encode())
        named.set()

    thread = threading.Thread(target=name)

    def look_and_be_overtaken(self: Blobs) -> Iterator[bytes]:
        yield from look(self)
        thread.start()
        assert not named.wait(0.1)

    with monkeypatch.context() as patched:
        patched.setattr(Blobs, "_texts", look_and_be_overtaken)
        assert [blob.digest for blob in store.blobs.sweep(older_than=NONE)] == [digest]
    thread.join()
    store.blobs.put(b"a picture")
    assert store.blobs.sweep(older_than=NONE) == []
