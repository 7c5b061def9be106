"""`hansard doctor` and `hansard version`."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from pathlib import Path

import pytest

import hansard


def log(tmp_path: Path, id: str) -> Path:
    return tmp_path / "store" / "sessions" / f"{id}.jsonl"


def damage(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"\x1b[2Jgarbage"
    path.write_bytes(b"\n".join(lines))


def test_all_is_well(begin, run, printed):
    begin("one")
    done = run("doctor")
    assert (done.exit_code, done.stdout) == (0, "All is well: 1 session looked at.\n")
    found = printed("doctor")
    assert found == {**found, "sessions": 1, "ok": True, "damaged": False, "findings": []}
    assert found["store"].startswith("file:")


def test_damage_is_found_with_its_place_and_ends_with_4(begin, store, run, printed, tmp_path):
    begin("one")
    id = begin("one", "two")
    store.append(id, {"role": "user", "content": "three"})
    damage(log(tmp_path, id))
    done = run("doctor")
    assert done.exit_code == 4
    assert "damaged places" in done.stdout
    assert f"  {log(tmp_path, id)}:" in done.stdout
    assert "→ what can be read is shown" in done.stdout
    assert done.stdout.endswith("2 sessions looked at; 1 session damaged.\n")
    found = printed("doctor", code=4)
    assert (found["ok"], found["damaged"]) == (False, True)
    assert {"kind", "session", "place", "detail", "remedy", "repaired"} == set(found["findings"][0])


def test_a_write_cut_short_is_no_loss(begin, run, tmp_path):
    id = begin("one")
    with log(tmp_path, id).open("ab") as file:
        file.write(b'{"kind":"mess')
    done = run("doctor")
    assert done.exit_code == 0
    assert "1 write cut short by a crash" in done.stdout
    assert "1 session looked at; nothing is lost." in done.stdout


def test_what_is_not_ours_is_named_and_left(begin, run, tmp_path):
    begin("one")
    (tmp_path / "store" / "no\x1bte.txt").write_text("mine")
    (tmp_path / "store" / "other.txt").write_text("mine")
    done = run("doctor")
    assert done.exit_code == 0
    assert "2 things that are not ours" in done.stdout
    assert "no␛te.txt" in done.stdout
    assert done.stdout.count("→ move it elsewhere") == 1


def test_what_is_not_ours_may_have_a_name_that_is_no_text(begin, run, printed, tmp_path):
    begin("one")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/store/\xff.txt")).write_text("mine")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/store/sessions/\xff.txt")).write_text("mine")
    places = [finding["place"] for finding in printed("doctor")["findings"]]
    assert places == [f"{tmp_path}/store/\ufffd.txt", f"{tmp_path}/store/sessions/\ufffd.txt"]
    for place in places:
        assert place in run("doctor").stdout


@pytest.mark.parametrize(
    ("command", "shown"), [("ls", "title"), ("show", "one"), ("", "title"), ("doctor", "1 session looked at")]
)
def test_a_store_of_a_newer_version_is_read_and_not_touched(
    begin, store, run, printed, tmp_path, command, shown
):
    begin("one", title="title", id="a")
    store.close()
    root = tmp_path / "store" / "hansard.json"
    root.write_text(root.read_text().replace('"format":1', '"format":2'))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    words = [command, "a"] if command == "show" else [command] if command else []
    done = run(*words)
    assert (done.exit_code, shown in done.stdout) == (0, True)
    assert "was written by a newer version; this is what can be read of it" in done.stderr
    printed(*words)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_store_of_a_newer_version_is_not_mended(begin, store, run, tmp_path):
    begin("one")
    store.close()
    root = tmp_path / "store" / "hansard.json"
    root.write_text(root.read_text().replace('"format":1', '"format":2'))
    done = run("doctor", "--repair")
    assert done.exit_code == 1
    assert "was written in format 2" in done.stderr


def test_it_changes_no_log(begin, run, tmp_path):
    id = begin("one", "two", "three")
    damage(log(tmp_path, id))
    before = log(tmp_path, id).read_bytes()
    run("doctor")
    assert log(tmp_path, id).read_bytes() == before


def test_there_must_be_a_store(run, tmp_path):
    done = run("doctor")
    assert done.exit_code == 1
    assert "there is no store at" in done.stderr
    assert not (tmp_path / "store").exists()


def test_version_says_what_runs(run, printed, tmp_path):
    found = printed("version")
    assert list(found) == ["hansard", "python", "sqlite", "platform", "store"]
    assert found["hansard"] == hansard.__version__
    assert found["python"] == platform.python_version()
    assert found["sqlite"] == sqlite3.sqlite_version
    assert found["store"] == str(tmp_path / "store")
    assert f"hansard   {hansard.__version__}\n" in run("version").stdout
    assert run("--version").stdout == f"hansard {hansard.__version__}\n"


def test_version_tells_of_a_store_that_cannot_be(process, tmp_path):
    odd = {**os.environb, b"HANSARD_STORE": os.fsencode(tmp_path) + b"/x\xff"}
    assert json.loads(process("version", "--json", env=odd).stdout)["store"] == f"{tmp_path}/x\ufffd"
    done = process("ls", env=odd)
    assert done.returncode == 2
    assert "$HANSARD_STORE: " in done.stderr
    assert "is not text in UTF-8" in done.stderr


def test_repair_mends_keeps_a_copy_and_ends_with_0(begin, store, run, printed, tmp_path):
    id = begin("one", "two")
    store.append(id, {"role": "user", "content": "three"})
    damage(log(tmp_path, id))
    damaged = log(tmp_path, id).read_bytes()
    done = run("doctor", "--repair")
    assert done.exit_code == 0
    assert "→ it was mended" in done.stdout
    assert done.stdout.endswith("1 session looked at; nothing is lost.\n")
    [copy] = (tmp_path / "store" / "aside").iterdir()
    assert copy.read_bytes() == damaged
    found = printed("doctor")
    assert [finding["kind"] for finding in found["findings"]] == ["aside"]
