"""A session as Markdown: what a reader finds in it, and that nothing in it breaks out of its place."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

import hansard
from hansard import Head, InvalidPayload, NewerFormat, Record, Session, Usage
from hansard.formats import pieces, render
from hansard.views.words import safe

AT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
OURS = re.compile(
    r"</details>\n?|<details>\n<summary>(?:[^<>&]|&(?:lt|gt|amp);|</?(?:code|strong)>)*</summary>\n?"
)


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def head(**fields: Any) -> Head:
    return Head(**{"id": "s-1", "seq": 0, "created_at": AT, "updated_at": AT, **fields})


def message(data: Any, seq: int = 1, **fields: Any) -> Record:
    return Record(kind="message", data=data, at=AT, seq=seq, **fields)


def parse(text: str, *, tables: bool = True) -> list[Token]:
    """The document as GitHub reads it (or, without tables, CommonMark); it has no HTML but ours in it, and
    no definitions."""
    parser = MarkdownIt("commonmark", {"maxNesting": 1000})
    parser = parser.enable(["table", "strikethrough"]) if tables else parser
    env: dict[str, Any] = {}
    tokens = parser.parse(text, env)
    assert not env.get("references")
    for token in every(tokens):
        assert token.type != "html_inline", token.content
        if token.type == "html_block":
            assert token.level == 0
            assert OURS.fullmatch(token.content), token.content
    return tokens


def every(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from every(token.children or [])


def outline(text: str, *, tables: bool = True) -> list[str]:
    """What stands outside of quotes and fences: headings, rules, folds and our own lines."""
    found = []
    tokens = parse(text, tables=tables)
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.level == 0 and token.nesting >= 0 and after is not None:
            found.append(f"{token.tag} {after.content}" if token.type == "heading_open" else token.type)
        elif token.level == 0 and token.nesting >= 0:
            found.append(token.type)
    return found


def codes(tokens: list[Token]) -> list[str]:
    return [t.content for t in every(tokens) if t.type in ("fence", "code_block", "code_inline")]


def forgiving(tokens: list[Token]) -> list[str]:
    """The same, for code spans of several lines: a tag that begins a line would end them, and is escaped."""
    return [
        t.content.replace("&lt;", "<") if t.type == "code_inline" else t.content
        for t in every(tokens)
        if t.type in ("fence", "code_block", "code_inline")
    ]


def words(text: str) -> str:
    """What a reader reads, without markup."""
    return " ".join(t.content for t in every(parse(text)) if t.type in ("text", "code_inline", "fence"))


@pytest.fixture
def session() -> Iterator[Session]:
    with hansard.open("memory:") as store, store.create(agent="coder", model="gpt-5") as session:
        yield session


# -- what a reader finds ----------------------------------------------------------------------------


def test_the_title_is_the_heading_and_the_facts_follow() -> None:
    facts = head(
        title="Build a login page",
        agent="coder",
        model="glm-5",
        vendor="zai",
        endpoint="main",
        workspace="/srv/shop",
        messages=1200,
        usage=Usage(input_tokens=5000, output_tokens=20, cost=0.25),
    )
    assert render(facts, []) == (
        "# Build a login page\n"
        "\n"
        "- **Session:** `s-1`\n"
        "- **Agent:** `coder`\n"
        "- **Model:** `glm-5` · `zai` · `main`\n"
        "- **Workspace:** `/srv/shop`\n"
        "- **Created:** 2026-05-01 12:30:00 UTC\n"
        "- **Updated:** 2026-05-01 12:30:00 UTC\n"
        "- **Messages:** 1,200\n"
        "- **Usage:** 5,000 in, 20 out · $0.25\n"
        "\n"
        "*No messages.*\n"
    )


def test_a_session_of_which_nothing_is_known_is_a_document_too() -> None:
    assert render(None, []) == "# Untitled session\n\n*No messages.*\n"
    assert render(head(), []).startswith("# Untitled session\n")


def test_each_message_names_its_speaker_and_quotes_what_was_said() -> None:
    text = render(None, [said("Be brief", "system"), said("Hi\n\nthere"), said("*Hello*", "assistant")])
    assert text == (
        "# Untitled session\n"
        "\n## System\n\n> Be brief\n"
        "\n## User\n\n> Hi\n>\n> there\n"
        "\n## Assistant\n\n> *Hello*\n"
    )


def test_a_record_says_when_it_was_said_and_by_which_model_where_that_differs() -> None:
    records = [
        message(said("a", "assistant"), 1, model="gpt-5"),
        message(said("b", "assistant"), 2, model="mini"),
    ]
    text = render(head(model="gpt-5"), records)
    assert "## Assistant\n\n2026-05-01 12:30:00 UTC\n\n> a\n" in text
    assert "## Assistant\n\n2026-05-01 12:30:00 UTC · `mini`\n\n> b\n" in text


def test_a_saved_session_has_all_that_was_said_and_nothing_else(session: Session) -> None:
    session.append(said("first"), usage={"input_tokens": 1})
    session.update(meta={"secret": "meta is not shown"})
    session.append(said("kept apart"), kind="message", id="m-2")
    session.clear()
    session.append(said("last"))
    text = render(session.head, session.records())
    assert [line for line in text.split("\n") if line.startswith(("## ", "> "))] == [
        "## User", "> first", "## User", "> kept apart", "## User", "> last",
    ]  # fmt: skip
    assert "secret" not in text
    assert "- **Messages:** 3\n" in text


def test_a_session_that_was_never_saved_can_be_exported() -> None:
    with hansard.open("memory:") as store:
        session = store.create(title="Not yet")
        text = render(session.head, session.history())
        session.close()
    assert text.startswith("# Not yet\n")
    assert text.endswith("\n*No messages.*\n")


def test_what_no_store_could_keep_is_refused_as_a_store_would() -> None:
    with pytest.raises(InvalidPayload):
        render(None, [{"role": "user", "content": object()}])


OPENAI = [
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Where is it?",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a.py"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "print(1)\n"},
]
ANTHROPIC = [
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Where is it?", "signature": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "print(1)\n"}]}
        ],
    },
]


@pytest.mark.parametrize("payloads", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_tools_and_reasoning_are_folded_whoever_made_the_message(payloads: list[Any]) -> None:
    text = render(None, payloads)
    assert text.count("## ") == 1
    assert "<details>\n<summary>Reasoning</summary>\n\n> Where is it?\n\n</details>\n" in text
    assert '```json\n{\n  "path": "a.py"\n}\n```\n' in text
    assert (
        "<summary>Result of <code>read</code> (9 B)</summary>\n\n```\nprint(1)\n```\n\n</details>\n" in text
    )
    assert outline(text).count("html_block") == 6


def test_the_summary_of_a_call_shows_how_its_input_begins() -> None:
    assert '<summary>Call of <code>read</code> <code>{"path":"a.py"}</code></summary>' in render(None, OPENAI)


def test_a_failed_result_is_marked_where_it_is_folded() -> None:
    failed = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no such file"}
        ],
    }
    text = render(None, [ANTHROPIC[0], failed])
    assert "<summary>Result of <code>read</code>: <strong>failed</strong></summary>" in text


def test_a_result_that_follows_nobody_has_a_heading() -> None:
    assert "## Tool\n" in render(None, [OPENAI[1]])
    assert "## Tool\n" in render(None, [OPENAI[0], said("Wait"), OPENAI[1]])


def test_images_are_named_and_linked_but_never_loaded() -> None:
    data = "data:image/png;base64," + base64.b64encode(b"x" * 3000).decode()
    blocks = [
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a b?c=1&lt;=2>)![x](y"}},
        {"type": "image_url", "image_url": {"url": "javascript:alert(1)"}},
    ]
    text = render(None, [{"role": "user", "content": blocks}])
    assert "*Image* `image/png` (4.0 KB, not included)" in text
    tokens = list(every(parse(text)))
    assert [t.attrs["href"] for t in tokens if t.type == "link_open"] == [
        "https://example.com/a%20b?c=1&lt;=2%3E)!%5Bx%5D(y"
    ]
    assert not [t for t in tokens if t.type == "image"]
    assert "`javascript:alert(1)`" in text


def test_the_images_of_a_result_stand_in_its_fold() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [image, image]}
    text = render(None, [{"role": "user", "content": [result]}])
    assert text.count("<details>") == 1
    assert text.index("</details>") > text.rindex("*Image* `image/png`") > text.index("*Image* `image/png`")


@pytest.mark.parametrize(
    "payload",
    [{"hello": "```"}, [1, 2], 7, None, {"role": "user", "content": [{"type": "hologram", "x": 1}]}],
)
def test_what_no_reading_explains_is_shown_as_json(payload: Any) -> None:
    (shown,) = codes(parse(render(None, [payload])))
    assert json.loads(shown) == payload


def test_an_empty_message_is_said_to_be_empty() -> None:
    assert "## User\n\n*(empty)*\n" in render(None, [said("")])
    assert "*Reasoning that is not readable.*" in render(
        None, [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]
    )


def test_a_checkpoint_is_a_note_between_rules_with_what_the_model_sees_instead(session: Session) -> None:
    session.append(said("first"))
    session.checkpoint([said("In short: # first")], summary="All done")
    session.append(said("next"))
    text = render(session.head, session.records())
    assert "\n---\n\n*The model goes on from a summary of what was said so far.*\n" in text
    assert "**User**\n\n> In short: # first\n\n</details>\n" in text
    assert "<summary>Summary</summary>\n\n> All done\n" in text
    assert [part for part in outline(text) if part in ("hr", "h2 User")] == ["h2 User", "hr", "hr", "h2 User"]


@pytest.mark.parametrize("op", ["checkpoint", "truncate", "set", "pop", "clear", "rewind", "unheard-of", 7])
def test_every_change_of_the_history_is_told(op: Any) -> None:
    record = Record(kind="history", data={"op": op, "parts": [], "summary": ""}, at=AT, seq=3)
    assert re.search(r"\n---\n\n\*.+\.\*\n\n---\n", render(None, [record]))


def test_a_record_that_must_be_understood_is_not_passed_over() -> None:
    with pytest.raises(NewerFormat):
        render(None, [Record(kind="!redacted", at=AT, seq=1)])


def test_a_long_session_passes_through_turn_by_turn() -> None:
    taken = 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield said(f"Message {taken}")

    stream = pieces(None, endless(), "markdown")
    while "Message 50" not in next(stream):
        pass
    assert taken == 51  # which ends the turn before it


def test_results_stand_below_their_calls_in_whatever_order_they_came() -> None:
    calls = [{"id": id, "type": "function", "function": {"name": id, "arguments": ""}} for id in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": id, "content": f"of {id}"} for id in ("b", "a")]
    text = render(None, [said("go"), {"role": "assistant", "tool_calls": calls}, *results])
    assert re.findall("<summary>(.*)</summary>", text) == [
        "Call of <code>a</code>",
        "Result of <code>a</code> (4 B)",
        "Call of <code>b</code>",
        "Result of <code>b</code> (4 B)",
    ]


def test_what_vacuum_took_out_is_told() -> None:
    with hansard.open("memory:") as store:
        with store.create("s") as session:
            session.extend([said("one"), said("two"), said("three")])
            session.truncate(1)
        store.vacuum("s", drop_history=True)
        text = render(store.head("s"), store.read("s").records())
    assert "\n*2 messages that the model no longer sees were taken out here.*\n" in text
    assert "> one" not in text


# -- nothing breaks out -----------------------------------------------------------------------------

BREAKERS = [
    "```", "~~~~", "```python\nx = 1", "<!-- ", "-->", "<details>", "</details>", "<script>alert(1)</script>",
    "<b>", "</summary>", "<?php", "<!DOCTYPE html>", "<![CDATA[", "<img src=x onerror=alert(1)>", "# Fake",
    "## User", "Fake\n====", "User\n---", "---", "***", "> quote", "- item", "1. item", "  ", "    ", "\t",
    "`", "``", "`<i>`", "\\", "\\`", "\\<", "&lt;b>", "[x]: http://evil.example", "[x]:", "[^1]: note", "[x]",
    "[a\nb]: /c", "| a | b |\n|---|---|\n| `<i> | ` |", "|", "|-|-|", "<https://example.com>", "<https:`>",
    "\r", "\r\n", "\x00", "\x1b[2J", "\u2028", "\u202e", "\x85", "a", " ", "\n", "\n\n", "*", "_", "![x](y)",
]  # fmt: skip
hostile = st.lists(st.sampled_from(BREAKERS) | st.text(max_size=8), max_size=14).map("".join)


@given(st.lists(hostile, min_size=1, max_size=4), st.booleans())
@settings(max_examples=400, deadline=None)
def test_no_text_breaks_out_of_its_message(texts: list[str], tables: bool) -> None:
    found = outline(render(None, [said(text) for text in texts]), tables=tables)
    wanted = []
    for text in texts:
        wanted.append("h2 User")
        wanted.append("blockquote_open" if text.strip() else "paragraph_open")
    assert [part for part in found if part != "inline"] == ["h1 Untitled session", *wanted]


@given(hostile, hostile, hostile)
@settings(max_examples=200, deadline=None)
def test_no_tool_or_reasoning_breaks_out_of_its_fold(name: str, given_in: str, put_out: str) -> None:
    call = {"type": "tool_use", "id": "c", "name": name, "input": {"x": given_in}}
    thought = {"type": "thinking", "thinking": put_out, "signature": ""}
    result = {"type": "tool_result", "tool_use_id": "c", "content": put_out}
    text = render(
        None, [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    )
    found = [part for part in outline(text) if part not in ("inline", "paragraph_open", "blockquote_open")]
    folds = found[2:]
    assert found[:2] == ["h1 Untitled session", "h2 Assistant"]
    assert folds.count("html_block") in (4, 6)  # reasoning that is blank has no fold
    assert set(folds) <= {"html_block", "fence"}
    shown = json.loads(codes(parse(text))[-2 if put_out else -1])
    assert shown.keys() == {"x"}


@given(
    st.fixed_dictionaries(dict.fromkeys(["title", "agent", "model", "workspace", "parent", "id"], hostile))
)
@settings(max_examples=200, deadline=None)
def test_no_name_breaks_out_of_its_line(fields: dict[str, str]) -> None:
    fields["id"] = fields["id"] or "s"
    text = render(head(**fields, labels=[fields["title"]]), [])
    tokens = parse(text)
    assert [t.type for t in tokens if t.level == 0 and t.nesting > 0] == [
        "heading_open", "bullet_list_open", "paragraph_open",
    ]  # fmt: skip
    title = next(t for t in tokens if t.type == "inline")
    assert {t.type for t in title.children or []} <= {"text", "text_special"}
    assert not [t for t in every(tokens) if t.type in ("link_open", "image", "em_open", "s_open")][1:]
    assert safe(text) == text


@given(hostile)
@settings(max_examples=400, deadline=None)
def test_code_in_a_message_stays_as_it_was_written(text: str) -> None:
    if "|" in text:
        return  # where tables are, what counts as code is for their reader to say
    shown = render(None, [said(text)])
    quoted = "\n".join(f"> {line}" for line in safe(text).strip("\n").split("\n")) + "\n"
    plain = MarkdownIt("commonmark", {"html": False, "maxNesting": 1000}).disable("reference").parse(quoted)
    assert forgiving(parse(shown)) == forgiving(plain)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a < b and <T> in `Vec<T>`", "a < b and &lt;T> in `Vec<T>`"),
        ("<!-- gone", "&lt;!-- gone"),
        (r"\<b> \\<b>", r"&lt;b> \\&lt;b>"),
        ("see <https://example.com/a_b>", "see <https://example.com/a_b>"),
        ("[a]: http://evil.example", r"\[a]: http://evil.example"),
        ("[^1]: evil", r"\[^1]: evil"),
        ("text [a]: <b>", "text [a]: &lt;b>"),
        ("- x\n  ```html\n  <div>\n  ```\n  <div>", "- x\n  ```html\n  <div>\n  ```\n  &lt;div>"),
        ("`\n` <b> `", "`\n` &lt;b> `"),
        ("`\n<!-- <b>`", "`\n&lt;!-- <b>`"),
        ("|`<i>`|\n|-|\n|`<b>`|", "|`<i>`|\n|-|\n|`<b>`|"),
        ("|`|<i>`|\n|-|-|\n|`<b>`|", "|`|&lt;i>`|\n|-|-|\n|`&lt;b>`|"),
    ],
)
def test_what_would_reach_beyond_a_message_is_shown_instead(text: str, shown: str) -> None:
    quoted = "\n".join(f"> {line}" for line in shown.split("\n"))
    assert render(None, [said(text)]).endswith(f"## User\n\n{quoted}\n")


def test_a_text_too_long_to_tell_its_code_has_no_html_either() -> None:
    text = "`<b>`\n[x]: y\n" * 100_000
    shown = render(None, [said(text)])
    assert "<b>" not in shown
    assert "]: " not in shown


def test_control_characters_are_made_visible() -> None:
    shown = render(
        head(title="a\x1b[2Jb\u202e"), [said("x\x1b[31m\x00"), {"role": "tool", "content": "\x07"}]
    )
    assert "# a␛\\[2Jb<U+202E>".replace("<", "&lt;").replace(">", "&gt;") in shown
    assert "> x␛[31m␀\n" in shown
    assert "\n␇\n" in shown


def test_a_fence_is_longer_than_any_run_of_backticks_in_it() -> None:
    text = "`````\n# Not a heading\n~~~"
    shown = render(None, [{"role": "tool", "tool_call_id": "c", "content": text}])
    assert codes(parse(shown)) == [text + "\n"]
