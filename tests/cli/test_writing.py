"""`hansard new` and `hansard append`: a script records a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import hansard


def said(store, id):
    return [record.data for record in store.read(id).records(kinds=["message"])]


def test_new_prints_an_id_and_the_session_is_there(run, store):
    done = run("new", "--agent", "nightly", "--model", "gpt-5", "--title", "Build", "--label", "ci")
    assert (done.exit_code, done.stderr) == (0, "")
    head = store.head(done.stdout.strip())
    assert (head.agent, head.model, head.title, head.labels) == ("nightly", "gpt-5", "Build", ["ci"])
    assert store.active() == head.id


def test_new_leaves_the_active_session_if_it_is_told_to(run, store):
    first = run("new").stdout.strip()
    run("new", "--no-activate")
    assert store.active() == first


def test_new_begins_the_store(run, tmp_path):
    assert run("new", "--store", tmp_path / "other", "--id", "a").stdout == "a\n"
    assert (tmp_path / "other" / "hansard.json").exists()


def test_new_keeps_meta_as_json_or_as_text(run, store):
    run(
        "new",
        "--id",
        "a",
        *(f"--meta={one}" for one in ("run=4711", "name=x", 'tags=["a"]', "empty=", "a=b=c")),
    )
    assert store.head("a").meta == {"run": 4711, "name": "x", "tags": ["a"], "empty": "", "a": "b=c"}
    assert run("new", "--meta", "nothing").exit_code == 2


def test_new_does_not_take_an_id_that_is_taken(run, begin):
    begin("one", id="a")
    done = run("new", "--id", "a")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "exists already" in done.stderr
    assert run("new", "--id", "a\nb").exit_code == 1


def test_append_adds_what_is_given_and_prints_its_number(run, store):
    run("new", "--id", "abc")
    assert run("append", "ab", "Build", "a login page").stdout == "1\n"
    assert run("append", "@active", "Done.", "--role", "assistant").stdout == "2\n"
    assert said(store, "abc") == [
        {"role": "user", "content": "Build a login page"},
        {"role": "assistant", "content": "Done."},
    ]


def test_append_takes_what_comes_in(run, store):
    run("new", "--id", "a")
    run("append", "a", "--role", "tool", input="two\nlines\n\n")
    assert said(store, "a") == [{"role": "tool", "content": "two\nlines\n"}]


def test_append_takes_any_text(run, store):
    run("new", "--id", "a")
    texts = ["-rf", "\x1b[31m", "修复 👍", "", "'", '{"json": true}']
    for text in texts:
        assert run("append", "a", "--", text).exit_code == 0
    assert [message["content"] for message in said(store, "a")] == texts


def test_append_takes_a_payload_as_it_is(run, store):
    run("new", "--id", "a")
    payload = {"role": "assistant", "content": None, "n": 2**70, "tool_calls": []}
    assert run("append", "a", "--payload", json.dumps(payload)).exit_code == 0
    assert run("append", "a", "--payload", input=json.dumps(payload, indent=2)).exit_code == 0
    assert said(store, "a") == [payload, payload]


def test_lines_are_stored_together_or_not_at_all(run, store):
    run("new", "--id", "a")
    lines = [{"role": "user", "content": str(n)} for n in range(3)]
    text = "\n\n".join(map(json.dumps, lines))
    assert run("append", "a", "--jsonl", input=text).stdout == "3\n"
    assert {record.batch for record in store.read("a").records(kinds=["message"])} == {(1, 3)}
    done = run("append", "a", "--jsonl", input=text + "\n{")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "line 6 is no JSON" in done.stderr
    assert said(store, "a") == lines


def test_no_lines_are_nothing_to_do(run, store):
    run("new", "--id", "a")
    done = run("append", "a", "--jsonl", input="")
    assert (done.exit_code, done.stdout) == (0, "")
    assert store.head("a").seq == 0


def test_a_repeat_with_the_same_id_is_stored_once(run, store):
    run("new", "--id", "a")
    for _ in range(2):
        assert run("append", "a", "Deploy it", "--id", "r1").stdout == "1\n"
    lines = '{"role":"user","content":"1"}\n{"role":"user","content":"2"}'
    for _ in range(2):
        assert run("append", "a", "--jsonl", "--id", "r2", input=lines).stdout == "3\n"
    assert len(said(store, "a")) == 3
    done = run("append", "a", "Something else", "--id", "r1")
    assert done.exit_code == 1
    assert "says something else" in done.stderr


def test_expect_refuses_what_came_meanwhile(run, store):
    assert run("append", "a", "--create", "--expect", "-1", "one").stdout == "1\n"
    assert run("append", "a", "--create", "--expect", "-1", "one").exit_code == 1
    assert run("append", "a", "--expect", "1", "two").stdout == "2\n"
    done = run("append", "a", "--expect", "1", "three")
    assert done.exit_code == 1
    assert "is at record 2, not 1" in done.stderr


def test_create_takes_the_id_as_it_is(run, store, begin):
    begin("one", id="abc")
    run("append", "--create", "ab", "two")
    run("append", "--create", "@x", "three")
    assert [len(said(store, id)) for id in ("abc", "ab", "@x")] == [1, 1, 1]


def test_a_session_that_looks_like_a_name_or_an_option_can_be_written(run, store, begin):
    for id in ("@x", "-x"):
        begin("one", id=id)
        assert run("append", f"--session={id}", "two").exit_code == 0
        assert len(said(store, id)) == 2
    done = run("append", "@x", "three")
    assert done.exit_code == 1
    assert "hansard append --session=@x" in done.stderr


def test_usage_model_and_time_are_kept(run, store):
    run("new", "--id", "a")
    paid = '{"input_tokens": 812, "output_tokens": 95}'
    run(
        "append",
        "a",
        "Done.",
        "--role",
        "assistant",
        "--usage",
        paid,
        "--model",
        "gpt-5",
        "--time",
        "2026-05-01T12:00Z",
    )
    record = store.read("a").get(1)
    assert (record.model, record.when.year) == ("gpt-5", 2026)
    assert store.head("a").usage.total_tokens == 907


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["append"], 2),
        (["append", "", "text"], 2),
        (["append", "  ", "text"], 2),
        (["append", "nope", "text"], 1),
        (["append", "a", "--payload", "{"], 1),
        (["append", "a", "--payload", "[" * 100_000], 1),
        (["append", "a", "--payload", "x", "--role", "user"], 2),
        (["append", "a", "--jsonl", "--usage", "{}"], 2),
        (["append", "a", "x", "--usage", "{"], 1),
        (["append", "a", "x", "--usage", "{}"], 1),
        (["append", "a", "x", "--expect", "-2"], 2),
        (["append", "a", "\udcff"], 1),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_written_is_refused(run, store, args, code):
    run("new", "--id", "a")
    done = run(*args)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr
    assert not said(store, "a")


@pytest.mark.parametrize(
    ("given", "told"), [(b"", "nothing came in"), (b"ab\xff", "byte 2 of the input is no text")]
)
def test_an_input_that_is_no_text_is_refused(run, given, told):
    run("new", "--id", "a")
    done = run("append", "a", input=given)
    assert done.exit_code == 1
    assert told in done.stderr


def test_a_script_records_a_session_beside_the_agent_that_has_it_open(store, tmp_path):
    script = """
        set -eu
        hansard() { "$PYTHON" -m hansard "$@"; }
        hansard append work "Build a login page" >/dev/null
        echo "a line" | hansard append work --role tool >/dev/null
        hansard show work --live --json
    """
    with store.create("work") as session:
        session.append({"role": "user", "content": "Begin"})
        env = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=True)
        assert len(session.history()) == 3
    assert json.loads(done.stdout)["messages"][2] == {"role": "tool", "content": "a line"}


def test_without_a_store_nothing_is_begun_by_append(run, tmp_path):
    done = run("append", "a", "text")
    assert done.exit_code == 1
    assert "there is no store" in done.stderr
    assert not (tmp_path / "store").exists()


def test_at_a_terminal_it_says_that_it_waits(terminal, store, begin):
    id = begin("one")
    shown = terminal("append", id, typed="hello\n\x04", when="Ctrl-D")
    assert shown.code == 0
    assert "Ctrl-D" in shown.text
    assert said(store, id)[-1] == {"role": "user", "content": "hello"}


def test_what_is_written_can_be_read_by_the_library(run):
    id = run("new", "--agent", "nightly").stdout.strip()
    run("append", id, "Hello")
    with hansard.open() as store, store.resume() as session:
        assert session.id == id
        assert session.history() == [{"role": "user", "content": "Hello"}]
