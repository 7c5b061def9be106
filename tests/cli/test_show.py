"""`hansard show`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

TOOLS = [
    "Look at it",
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Where is it? " * 100},
            {"type": "text", "text": "I look.\n\n    indented"},
            {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a.py"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "line\n" * 5000, "is_error": True}
        ],
    },
]


def test_it_shows_who_it_is_and_what_was_said(begin, run):
    id = begin(
        "Fix CI", {"role": "assistant", "content": "Done."}, agent="coder", model="gpt-5", labels=["a", "b"]
    )
    head, user, assistant = run("show", id).stdout.split("\n\n")
    assert head.splitlines()[0] == "Fix CI"
    assert ["agent", "coder"] in [line.split() for line in head.splitlines()]
    assert ["labels", "a,", "b"] in [line.split() for line in head.splitlines()]
    assert user == "turn 1 · just now\nuser\n  Fix CI"
    assert assistant == "assistant\n  Done.\n"


def test_what_it_cost_is_shown(store, run):
    with store.create() as session:
        session.append({"role": "user", "content": "Hi"})
        session.append(
            {"role": "assistant", "content": "Hi"},
            usage={"input_tokens": 1812, "output_tokens": 95, "cost": 0.25},
        )
    assert "1,812 in, 95 out · $0.25" in run("show").stdout


@pytest.mark.parametrize("ref", ["{id}", "{id[:9]}", "{bare[:6]}", "@active", ""])
def test_a_session_is_named_in_many_ways(begin, store, run, ref):
    id = begin("Fix CI")
    begin("Another")
    store.activate(id)
    done = run(
        "show",
        *[ref.replace("{id[:9]}", id[:9]).replace("{bare[:6]}", id[5:11]).replace("{id}", id)][: bool(ref)],
    )
    assert done.stdout.startswith("Fix CI\n")


def test_without_an_active_one_it_is_the_newest(begin, run):
    begin("Fix CI")
    begin("Another")
    assert run("show").stdout.startswith("Another\n")


def test_tools_are_folded_to_a_line_each_with_its_size(begin, run):
    lines = run("show", begin(*TOOLS)).stdout.splitlines()
    (call,) = [line for line in lines if "→" in line]
    (result,) = [line for line in lines if "←" in line]
    assert call == '  → read_file  {"path":"a.py"}'
    assert result.startswith("  ← read_file failed  line line line")
    assert result.endswith("…  (25.0 KB)")


def test_reasoning_is_folded_and_text_is_whole(begin, run):
    text = run("show", begin(*TOOLS)).stdout
    assert "~ reasoning  Where is it? Where is it?" in text
    assert "(1.3 KB)" in text
    assert "  I look.\n\n      indented\n" in text


def test_an_image_is_named_not_printed(begin, run):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000}}
    text = run("show", begin({"role": "user", "content": [image]})).stdout
    assert "image image/png  (4.0 KB)" in text
    assert "AAAA" not in text


def test_what_nobody_recognises_is_shown_as_it_is(begin, run):
    text = run("show", begin("Hello", {"weird": [1, 2]}, "bare")).stdout
    assert '  {"weird":[1,2]}\n' in text


def test_each_turn_says_when_it_was_who_answered_and_what_it_cost(store, run):
    with store.create(model="gpt-5") as session:
        session.append({"role": "system", "content": "Be brief"})
        for model in ("gpt-5", "mini\x1b[2J"):
            session.append({"role": "user", "content": "Hi"})
            session.append(
                {"role": "assistant", "content": "Hi"}, model=model, usage={"input_tokens": 7, "cost": 0.25}
            )
    lines = run("show").stdout.splitlines()
    assert [line for line in lines if line.startswith("turn ")] == [
        "turn 0 · just now",
        "turn 1 · just now · 7 in · $0.25",
        "turn 2 · just now · mini␛[2J · 7 in · $0.25",
    ]


def test_results_stand_below_their_calls_and_steps_of_one_answer_together(begin, run):
    calls = [{"id": id, "type": "function", "function": {"name": id, "arguments": "{}"}} for id in ("a", "b")]
    id = begin(
        "Go",
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "assistant", "content": "Done."},
        "Thanks",
    )
    _, first, second, done, last = run("show", id).stdout.split("\n\n")
    assert first.splitlines()[1:] == ["user", "  Go"]
    assert second.splitlines() == ["assistant", "  I look.", "  → a  {}", "  ← a  A", "  → b  {}", "  ← b  B"]
    assert done == "  Done."
    assert last.splitlines()[1:] == ["user", "  Thanks"]


def test_the_images_of_a_result_are_named(begin, run):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image, image]}
    text = run("show", begin(*TOOLS[:2], {"role": "user", "content": [result]})).stdout
    assert text.count("image image/png  (4.0 KB)") == 2


def test_where_the_history_changed_it_says_so(begin, store, run):
    id = begin("one", "two")
    with store.open(id) as session:
        session.history()
        session.checkpoint([{"role": "user", "content": "in\x1b[2J short"}], summary="They counted.")
        session.append({"role": "user", "content": "three"})
    text = run("show", id).stdout
    note = "(The model goes on from a summary of what was said so far.)"
    places = [text.index(part) for part in ("  two", note, "  summary  They", "    in␛[2J short", "  three")]
    assert places == sorted(places)


def test_live_is_what_the_model_sees_now(begin, store, run):
    id = begin("one", "two", "three")
    with store.open(id) as session:
        session.history()
        session.truncate(1)
    text = run("show", id, "--live").stdout
    assert "user\n  three\n" in text
    assert "  one" not in text
    assert "without --live all" in text
    assert "  one\n" in run("show", id).stdout


def test_live_and_records_are_too_much(begin, run):
    assert run("show", begin("one"), "--live", "--records").exit_code == 2


def test_records_has_what_the_model_no_longer_sees(begin, store, run):
    id = begin("one", "two", "three", agent="coder")
    with store.open(id) as session:
        session.history()
        session.checkpoint([{"role": "user", "content": "in short"}], summary="They counted.")
        session.append({"role": "user", "content": "four"})
        session.label("x")
    text = run("show", id, "--records").stdout
    places = [
        text.index(word)
        for word in ("#0 · session", "\n  one\n", "checkpoint: the model sees 1 message", "in short")
    ]
    assert places == sorted(places)
    assert "#1 · user, no longer seen" in text
    assert "#5 · user · " in text
    assert "summary  They counted." in text
    assert '{"set":{"labels":["x"]}}' in text


@pytest.mark.parametrize("options", [[], ["--live"], ["--records"]], ids=["turns", "live", "records"])
def test_limit_takes_the_newest(begin, run, options):
    text = run("show", begin("one", "two", "three"), "--limit", 2, *options).stdout
    assert ("(The newest 2; without --limit all.)" in text) == (options != ["--records"])
    assert text.index("\n  two\n") < text.index("\n  three\n")
    assert "\n  one\n" not in text


@pytest.mark.parametrize("options", [[], ["--records"], ["--json"]], ids=["turns", "records", "json"])
def test_a_limit_beyond_all_numbers_is_none(begin, run, options):
    done = run("show", begin("one", "two"), "--limit", "9" * 30, *options)
    assert done.exit_code == 0
    assert "one" in done.stdout


@pytest.mark.parametrize("id", ["@active", "@x", "-rf", "one"])
def test_an_exact_id_names_just_one(begin, run, id):
    begin("Fix CI", id=id)
    begin("Another", id=f"{id}2")
    assert run("show", f"--id={id}").stdout.startswith("Fix CI\n")
    assert run("show", f"--id={id[:-1]}").exit_code == 1


def test_an_id_that_looks_like_a_name_is_not_one_and_it_says_how_to_ask_for_it(begin, run):
    begin("Fix CI", id="@x")
    done = run("show", "@x")
    assert done.exit_code == 1
    assert done.stderr == "hansard: no session is named '@x'; it is the id of one: `hansard show --id=@x`\n"
    assert "it is the id" not in run("show", "@y").stderr


def test_an_id_and_a_ref_are_too_much(begin, run):
    begin("Fix CI", id="one")
    assert run("show", "--id", "one", "one").exit_code == 2


def test_json_has_the_head_and_the_turns(begin, printed):
    id = begin(*TOOLS, {"x": 2**70, "s": "\x00\x1b\u202e"}, model="gpt-5")
    found = printed("show", id)
    assert list(found) == ["head", "turns"]
    first, second = found["turns"]
    assert (first["number"], first["first"], first["last"], first["models"]) == (1, 1, 3, ["gpt-5"])
    assert first["usage"]["calls"] == 0
    assert [item["kind"] for item in first["response"]] == ["reasoning", "text", "call"]
    [result] = first["response"][-1]["items"]
    assert (result["kind"], result["name"], result["seq"], result["error"]) == (
        "result",
        "read_file",
        3,
        True,
    )
    assert second["request"][0]["data"] == {"x": 2**70, "s": "\x00\x1b\u202e"}


def test_json_of_what_the_model_sees_has_its_messages_verbatim(begin, printed):
    id = begin(*TOOLS, {"x": 2**70, "s": "\x00\x1b\u202e\u2028\x9b é 👍"})
    found = printed("show", id, "--live")
    assert list(found) == ["head", "messages"]
    assert found["head"]["id"] == id
    assert found["messages"] == [
        {"role": "user", "content": "Look at it"},
        *TOOLS[1:],
        {"x": 2**70, "s": "\x00\x1b\u202e\u2028\x9b é 👍"},
    ]


def test_json_of_records_is_what_was_written(begin, store, printed):
    id = begin("one")
    with store.open(id) as session:
        session.append(
            {"role": "assistant", "content": "two"}, id="key", usage={"input_tokens": 3}, model="m"
        )
    records = printed("show", id, "--records")["records"]
    assert [record["seq"] for record in records] == [0, 1, 2]
    assert [record["kind"] for record in records] == ["session", "message", "message"]
    assert set(records[2]) == {"kind", "data", "id", "model", "usage", "at", "seq"}
    assert [record["seq"] for record in printed("show", id, "--records", "--limit", 2)["records"]] == [1, 2]


def test_json_has_one_line_for_each_turn(begin, run):
    lines = run("show", begin("one", "two"), "--json").stdout.splitlines()
    assert json.loads(lines[1].rstrip(","))["request"][0]["text"] == "one"
    assert len(lines) == 4


def test_an_unknown_session_is_not_found(begin, run):
    begin("one")
    done = run("show", "nope")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "hansard: no session 'nope'; list what there is with `hansard ls`\n"


def test_an_ambiguous_prefix_names_the_candidates(begin, run):
    for n in range(12):
        begin(f"number {n}", id=f"task-{n:02}")
    done = run("show", "task")
    assert done.exit_code == 1
    first, *below = done.stderr.splitlines()
    assert first == "hansard: 'task' begins 12 session ids; give more of the one you mean:"
    assert len(below) == 11
    assert below[-1] == "  and 2 more"
    assert "number" in below[0]


def test_with_nothing_to_show_it_says_so(store, run):
    done = run("show")
    assert done.exit_code == 1
    assert done.stderr.startswith("hansard: there is no session yet; ")


@pytest.mark.parametrize("options", [[], ["--records"]], ids=["turns", "records"])
def test_it_fits_a_narrow_terminal(begin, run, options):
    id = begin(*TOOLS, "A long sentence that is broken between its words. " * 5 + "修复登录" * 20, "x" * 100)
    text = run("show", id, *options, env={"COLUMNS": "40"}).stdout
    assert max(map(cell_len, text.splitlines())) <= 40
    assert "broken between its words." in " ".join(text.split())


def test_a_line_of_a_megabyte_is_broken_in_one_go(begin, run):
    """What is done for each piece of it must not go through the rest of it."""
    texts = ("é ü" * 250_000, "日本" * 100_000, "  indented é " * 70_000)
    for text in texts:
        started = time.process_time()
        lines = run("show", begin(text), env={"COLUMNS": "80"}).stdout.splitlines()
        assert time.process_time() - started < 10
        said = lines[lines.index("user") + 1 :]
        assert max(map(cell_len, said)) <= 80
        assert "".join("".join(said).split()) == "".join(text.split())


def test_in_a_pipe_lines_are_not_broken(begin, run):
    said = "A long sentence that stays on its line. " * 20
    assert f"\n  {said.strip()}\n" in run("show", begin(said)).stdout


def test_damage_is_told_and_ends_with_4(begin, store, process, tmp_path):
    id = begin("one", "two")
    store.append(id, {"role": "user", "content": "three"})
    log = Path(tmp_path / "store" / "sessions" / f"{id}.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"two"', b'"TWO"'))
    store.close()
    done = process("show", id)
    assert done.returncode == 4
    assert "damaged; see `hansard doctor`" in done.stderr
    assert done.stdout.startswith("one\n")
