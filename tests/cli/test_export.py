"""`hansard export`."""

from __future__ import annotations

import json
import os
import stat

import pytest

import hansard


def test_it_prints_what_the_library_renders(run, begin, store):
    id = begin("Build a login page", {"role": "assistant", "content": "Done."})
    view = store.read(id)
    assert run("export", id).stdout == hansard.formats.render(view.head, view.records())


def test_it_writes_a_file(run, begin, tmp_path):
    id = begin("one")
    done = run("export", id, "--to", tmp_path / "a.md")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "a.md").read_text() == run("export", id).stdout
    assert f"B written to {tmp_path / 'a.md'}" in done.stderr
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_it_overwrites_only_with_force(run, begin, tmp_path):
    id = begin("one")
    path = tmp_path / "a.md"
    path.write_text("mine")
    done = run("export", id, "--to", path)
    assert done.exit_code == 1
    assert "is there already, and was left as it is" in done.stderr
    assert path.read_text() == "mine"
    assert run("export", id, "--to", path, "--force").exit_code == 0
    assert "# one" in path.read_text()


def test_force_writes_what_a_link_leads_to(run, begin, tmp_path):
    id = begin("one")
    (tmp_path / "a.md").write_text("mine")
    (tmp_path / "link.md").symlink_to("a.md")
    assert run("export", id, "--to", tmp_path / "link.md", "--force").exit_code == 0
    assert (tmp_path / "link.md").is_symlink()
    assert "# one" in (tmp_path / "a.md").read_text()


def test_a_file_that_is_not_finished_is_not_there(run, begin, tmp_path, monkeypatch):
    def broken(head, records):
        yield "beginning"
        raise RuntimeError("a mistake in a form\x1bat")

    monkeypatch.setattr("hansard.formats._find", lambda name: broken)
    id = begin("one")
    path = tmp_path / "a.md"
    path.write_text("mine")
    done = run("export", id, "--to", path, "--force")
    assert done.exit_code == 1
    assert "a mistake in a form␛at" in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_text() == "mine"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_somebody_who_was_quicker_is_not_overwritten(run, begin, tmp_path, monkeypatch):
    path = tmp_path / "a.md"

    def slow(head, records):
        path.write_text("mine")
        yield "text"

    monkeypatch.setattr("hansard.formats._find", lambda name: slow)
    assert run("export", begin("one"), "--to", path).exit_code == 1
    assert path.read_text() == "mine"


def test_a_device_is_written_and_stays_one(run, begin):
    assert run("export", begin("one"), "--to", os.devnull).exit_code == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize(
    ("to", "told"),
    [("", "is a folder"), ("none/a.md", "there is no folder"), ("file/a.md", "Not a directory")],
)
def test_a_place_that_cannot_be_written_is_told(run, begin, tmp_path, to, told):
    (tmp_path / "file").write_text("")
    done = run("export", begin("one"), "--to", f"{tmp_path}/{to}")
    assert done.exit_code == 1
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_json_has_the_text(begin, run, printed, tmp_path):
    id = begin("修复 \u202e \x1b[2J", id="a")
    found = printed("export", id)
    assert found["text"] == run("export", id).stdout
    found = printed("export", id, "--to", tmp_path / "a.md")
    assert found == {**found, "session": "a", "to": str(tmp_path / "a.md")}
    assert found["bytes"] == (tmp_path / "a.md").stat().st_size


def test_a_format_that_is_not_there_is_told(run, begin):
    done = run("export", begin("one"), "--format", "docx")
    assert done.exit_code == 1
    assert "there is no format 'docx'; there are: markdown" in done.stderr


def test_a_format_of_somebody_else_cannot_reach_the_terminal(begin, terminal, tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hansard.formats]\nraw = acme\n")
    (site / "acme.py").write_text("def pieces(head, records):\n    yield '\\x1b[2Jgone\\n'\n")
    id = begin("one")
    path = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
    assert terminal("export", id, "--format", "raw", PYTHONPATH=path).text == "␛[2Jgone\n"


def test_damage_ends_with_4(run, begin, store, tmp_path):
    begin("one", "two", id="a")
    store.append("a", {"role": "user", "content": "three"})
    path = tmp_path / "store" / "sessions" / "a.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"garbage"
    path.write_bytes(b"\n".join(lines))
    done = run("export", "a", "--json")
    assert done.exit_code == 4
    assert "three" in json.loads(done.stdout)["text"]
