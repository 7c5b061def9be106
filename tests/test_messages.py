"""The reading of one message, whoever's form it has, and the mending of a list of them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard import messages
from hansard.messages import Part, read, recognise, repair
from hansard.messages.mending import INTERRUPTED

OPENAI_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    ],
}
OPENAI_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "a.txt\nb.txt"}
ITEM_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "ls",
    "arguments": '{"path":"."}',
    "status": "completed",
}
ITEM_RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"}
ITEM_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]}
ANTHROPIC_CALL = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}},
    ],
}
ANTHROPIC_RESULT = {
    "role": "user",
    "content": [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [
                {"type": "text", "text": "a.png"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            ],
        }
    ],
}
GEMINI_CALL = {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"path": "."}}}]}
GEMINI_RESULT = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "ls", "response": {"result": "a.txt"}}}],
}
GGCODE_CALL = {
    "id": "msg_2",
    "role": "assistant",
    "content": [{"type": "tool_use", "tool_id": "t1", "tool_name": "ls", "input": {"path": "."}}],
}
GGCODE_RESULT = {
    "id": "msg_3",
    "role": "user",
    "content": [
        {
            "type": "tool_result",
            "tool_id": "t1",
            "tool_name": "ls",
            "output": "a.txt",
            "is_error": True,
            "images": [{"mime": "image/png", "base64": "aGk="}],
        }
    ],
}
ACOLYTE = {
    "id": "msg_a1b2c3d4",
    "role": "user",
    "content": "hi",
    "kind": "text",
    "timestamp": "2026-03-04T12:00:01.000Z",
}
PICOCLAW = {
    "role": "assistant",
    "content": "",
    "model_name": "glm-5",
    "created_at": "2026-03-01T10:00:01Z",
    "reasoning_content": "Look first.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
}
LANGCHAIN_CALL = {
    "type": "ai",
    "data": {
        "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}],
        "tool_calls": [{"name": "ls", "args": {}, "id": "t1", "type": "tool_call"}],
        "response_metadata": {"model_name": "claude-opus-5"},
    },
}
LANGCHAIN_RESULT = {
    "type": "tool",
    "data": {"content": "a.txt", "tool_call_id": "t1", "name": "ls", "status": "success"},
}

SHAPES = [
    ({"role": "user", "content": "hi"}, "openai"),
    ({"role": "developer", "content": "Be brief."}, "openai"),
    (OPENAI_CALL, "openai"),
    (OPENAI_RESULT, "openai"),
    ({"role": "assistant", "function_call": {"name": "ls", "arguments": "{}"}}, "openai"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}, "openai"),
    (ITEM_CALL, "openai-responses"),
    (ITEM_RESULT, "openai-responses"),
    (ITEM_REASONING, "openai-responses"),
    ({"type": "message", "role": "user", "content": "hi"}, "openai-responses"),
    ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "openai-responses"),
    ({"type": "browser_call", "call_id": "c1", "action": {}}, "openai-responses"),
    (ANTHROPIC_CALL, "anthropic"),
    (ANTHROPIC_RESULT, "anthropic"),
    (
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}],
            "stop_reason": "x",
        },
        "anthropic",
    ),
    (GEMINI_CALL, "gemini"),
    (GEMINI_RESULT, "gemini"),
    ({"parts": [{"text": "hi"}]}, "gemini"),
    (ACOLYTE, "plain"),
    (GGCODE_CALL, "plain"),
    (GGCODE_RESULT, "plain"),
    (PICOCLAW, "plain"),
    (LANGCHAIN_CALL, "plain"),
    ({"type": "human", "content": "hi"}, "plain"),
    ({"role": "user", "text": "hi"}, "plain"),
    ({"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "plain"),
    ({"role": "narrator", "content": "Once upon a time"}, ""),
    ({"event": "clicked", "text": "Save"}, ""),
    ({"parts": [{"sku": 7}]}, ""),
    ({"role": "user"}, ""),
    ("hi", ""),
    (None, ""),
    ([{"role": "user", "content": "hi"}], ""),
]


@pytest.mark.parametrize(("payload", "shape"), SHAPES)
def test_the_shape_of_a_message_is_recognised(payload: Any, shape: str) -> None:
    assert recognise(payload) == shape


def test_a_shape_that_the_caller_names_is_believed() -> None:
    assert read({"role": "user", "content": "hi"}, "anthropic").shape == "anthropic"


def test_an_unknown_name_of_a_shape_is_as_good_as_none() -> None:
    assert read({"role": "user", "content": "hi"}, "smoke-signals").shape == "openai"


def test_a_named_shape_does_not_make_a_message_of_what_is_none() -> None:
    assert read({"event": "clicked"}, "openai").shape == ""


def test_openai_tool_calls_keep_their_arguments_as_given() -> None:
    assert read(OPENAI_CALL).parts == (Part("call", '{"path": "."}', "call_1", "ls"),)


def test_an_openai_tool_message_is_a_result() -> None:
    message = read(OPENAI_RESULT)
    assert message.role == "tool"
    assert message.parts == (Part("result", "a.txt\nb.txt", "call_1"),)


def test_legacy_function_calls_pair_by_name() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}}
    assert (
        messages.calls(call) == messages.results({"role": "function", "name": "ls", "content": ""}) == ("ls",)
    )


def test_openai_content_parts_are_text_images_sound_and_files() -> None:
    payload = {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        ],
    }
    assert read(payload).parts == (
        Part("text", "What is this?"),
        Part("image", media="https://example.org/a.png"),
        Part("file", media="data:audio/wav;base64,aGk=", mime="audio/wav"),
        Part("file", name="a.pdf", media="data:application/pdf;base64,aGk=", mime="application/pdf"),
    )


def test_a_refusal_is_said() -> None:
    assert messages.text({"role": "assistant", "content": None, "refusal": "I can't."}) == "I can't."


def test_a_spoken_answer_is_read_by_its_transcript() -> None:
    payload = {"role": "assistant", "content": None, "audio": {"id": "audio_1", "transcript": "Hello."}}
    assert messages.text(payload) == "Hello."


def test_reasoning_comes_before_what_is_said() -> None:
    payload = {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}
    assert [part.kind for part in read(payload).parts] == ["reasoning", "text"]


def test_a_bare_function_call_is_a_message_of_the_assistant() -> None:
    message = read(ITEM_CALL)
    assert (message.role, message.parts) == ("assistant", (Part("call", '{"path":"."}', "call_1", "ls"),))


def test_a_bare_output_is_a_message_of_the_tool() -> None:
    message = read(ITEM_RESULT)
    assert (message.role, message.parts) == ("tool", (Part("result", "a.txt", "call_1"),))


def test_a_custom_tool_call_takes_plain_text() -> None:
    payload = {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"}
    assert read(payload).parts == (Part("call", "select 1", "c1", "sql"),)


def test_a_local_shell_call_pairs_with_its_output() -> None:
    call = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "action": {"command": ["ls"]}}
    assert messages.calls(call) == ("c1",)
    assert messages.results({"type": "local_shell_call_output", "id": "c1", "output": "{}"}) == ("c1",)


def test_the_reasoning_of_an_item_is_its_summary() -> None:
    payload = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
        "encrypted_content": "gAAAA",
    }
    assert read(payload).parts == (Part("reasoning", "One.\n\nTwo."),)


def test_what_the_provider_runs_is_called_and_answered_in_one_item() -> None:
    payload = {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "search",
        "server_label": "docs",
        "arguments": "{}",
        "output": "found",
    }
    assert read(payload).parts == (
        Part("call", "{}", "mcp_1", "search"),
        Part("result", "found", "mcp_1", "search"),
    )


def test_a_web_search_shows_what_was_searched() -> None:
    payload = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    assert read(payload).parts[0] == Part("call", '{"query":"x"}', "ws_1", "web_search")


def test_a_drawn_image_is_kept_as_a_data_uri() -> None:
    payload = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="}
    assert read(payload).parts[1].media == "data:image/png;base64,aGk="


def test_a_screenshot_is_the_picture_of_its_result() -> None:
    payload = {
        "type": "computer_call_output",
        "call_id": "c1",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="},
    }
    assert read(payload).parts == (Part("result", "", "c1", "", "data:image/png;base64,aGk=", "image/png"),)


def test_anthropic_blocks_are_reasoning_text_and_calls() -> None:
    assert read(ANTHROPIC_CALL).parts == (
        Part("reasoning", "Look first."),
        Part("text", "Let me look."),
        Part("call", '{"path":"."}', "toolu_1", "ls"),
    )


def test_redacted_thinking_is_reasoning_without_text() -> None:
    payload = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "EmwKAhg"}]}
    assert read(payload).parts == (Part("reasoning"),)


def test_a_tool_result_keeps_its_texts_and_its_image() -> None:
    assert read(ANTHROPIC_RESULT).parts == (
        Part("result", "a.png", "toolu_1", "", "data:image/png;base64,aGk=", "image/png"),
    )


def test_an_error_of_a_tool_is_marked() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True}
    assert read({"role": "user", "content": [block]}).parts[0].error


def test_a_user_message_with_nothing_but_results_is_the_tools() -> None:
    assert read(ANTHROPIC_RESULT).role == "tool"
    assert read(GEMINI_RESULT).role == "tool"


def test_a_document_is_a_file_with_its_title() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    payload = {"role": "user", "content": [{"type": "document", "title": "Plan", "source": source}]}
    assert read(payload).parts == (
        Part("file", name="Plan", media="data:application/pdf;base64,aGk=", mime="application/pdf"),
    )


def test_a_document_of_text_has_its_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Once."}
    payload = {"role": "user", "content": [{"type": "document", "source": source}]}
    assert read(payload).parts == (Part("file", "Once.", mime="text/plain"),)


def test_a_web_search_of_anthropic_pairs_within_the_message() -> None:
    found = [{"type": "web_search_result", "title": "A", "url": "https://a.org", "encrypted_content": "x"}]
    payload = {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "a"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": found},
        ],
    }
    assert messages.calls(payload) == messages.results(payload) == ("srv_1",)
    assert read(payload).parts[1].text == "A https://a.org"


@pytest.mark.parametrize(
    "part",
    [
        {"functionCall": {"name": "ls", "args": {"path": "."}}},
        {"function_call": {"name": "ls", "args": {"path": "."}}},
    ],
)
def test_gemini_is_read_in_both_spellings(part: dict[str, Any]) -> None:
    message = read({"role": "model", "parts": [part]})
    assert (message.role, message.parts) == ("assistant", (Part("call", '{"path":"."}', "ls", "ls"),))


def test_a_gemini_result_is_unwrapped() -> None:
    assert read(GEMINI_RESULT).parts == (Part("result", "a.txt", "ls", "ls"),)


def test_gemini_thoughts_are_reasoning() -> None:
    payload = {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Yes."}]}
    assert [part.kind for part in read(payload).parts] == ["reasoning", "text"]


def test_gemini_media_is_inline_or_by_address() -> None:
    payload = {
        "role": "user",
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            {"file_data": {"mime_type": "application/pdf", "file_uri": "gs://bucket/a.pdf"}},
        ],
    }
    assert read(payload).parts == (
        Part("image", media="data:image/png;base64,aGk=", mime="image/png"),
        Part("file", media="gs://bucket/a.pdf", mime="application/pdf"),
    )


def test_ggcode_calls_and_results_pair_by_tool_id() -> None:
    assert read(GGCODE_CALL).parts == (Part("call", '{"path":"."}', "t1", "ls"),)
    assert read(GGCODE_RESULT).parts == (
        Part("result", "a.txt", "t1", "ls", "data:image/png;base64,aGk=", "image/png", True),
    )


def test_ggcode_images_and_reasoning_are_read() -> None:
    payload = {
        "role": "user",
        "content": [
            {"type": "text", "text": "See.", "reasoning_content": "Hm."},
            {"type": "image", "image_mime": "image/png", "image_data": "aGk="},
        ],
    }
    assert read(payload).parts == (
        Part("reasoning", "Hm."),
        Part("text", "See."),
        Part("image", media="data:image/png;base64,aGk=", mime="image/png"),
    )


def test_picoclaw_attachments_that_are_media_too_count_once() -> None:
    payload = {
        "role": "user",
        "content": "",
        "media": ["media://1"],
        "attachments": [
            {"type": "image", "ref": "media://1", "filename": "a.png"},
            {"type": "file", "url": "https://x.org/a.pdf", "filename": "a.pdf"},
        ],
    }
    assert [part.media for part in read(payload).parts] == ["media://1", "https://x.org/a.pdf"]


def test_langchain_calls_are_not_read_twice() -> None:
    assert read(LANGCHAIN_CALL).parts == (Part("call", "{}", "t1", "ls"),)


def test_a_langchain_tool_message_is_a_result() -> None:
    assert read(LANGCHAIN_RESULT).parts == (Part("result", "a.txt", "t1", "ls"),)


def test_integers_beyond_64_bits_survive_in_the_input_of_a_call() -> None:
    payload = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"n": 2**70}}],
    }
    assert json.loads(read(payload).parts[0].text) == {"n": 2**70}


def test_a_bare_text_is_a_text_of_nobody() -> None:
    assert read("hi") == messages.Message("", (Part("text", "hi"),), "")


def test_tuples_are_lists() -> None:
    assert messages.user_text({"role": "user", "content": ({"type": "text", "text": "hi"},)}) == "hi"


@pytest.mark.rule("L2")
@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"role": "user", "content": "hi"}, "hi"),
        (ACOLYTE, "hi"),
        ({"type": "human", "data": {"content": "hi"}}, "hi"),
        ({"role": "user", "parts": [{"text": "hi"}, {"text": "you"}]}, "hi\nyou"),
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "hi"),
        (
            {"role": "user", "content": [*ANTHROPIC_RESULT["content"], {"type": "text", "text": "go on"}]},
            "go on",
        ),
        ({"role": "user", "content": "  \n"}, ""),
        ({"role": "assistant", "content": "hi"}, ""),
        ({"role": "system", "content": "hi"}, ""),
        (ANTHROPIC_RESULT, ""),
        (OPENAI_RESULT, ""),
        (GEMINI_RESULT, ""),
        ("hi", ""),
    ],
)
def test_what_a_person_said_leaves_out_tools_and_everyone_else(payload: Any, said: str) -> None:
    assert messages.user_text(payload) == said


@pytest.mark.rule("W8")
@pytest.mark.parametrize(
    "payload",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "user", "content": "", "media": ["media://1"]},
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
        {"role": "user", "content": [*ANTHROPIC_RESULT["content"], {"type": "text", "text": "go on"}]},
        {"type": "human", "content": "hi"},
        {"parts": [{"text": "hi"}]},
        {"clicked": "Save"},
        "hi",
        None,
    ],
)
def test_text_pictures_files_and_the_unrecognised_are_user_input(payload: Any) -> None:
    assert messages.is_user_input(payload)


@pytest.mark.rule("W8")
@pytest.mark.parametrize(
    "payload",
    [
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": " \n"}]},
        {"role": "assistant", "content": "hi"},
        {"role": "system", "content": "Be brief."},
        ANTHROPIC_RESULT,
        GEMINI_RESULT,
        GGCODE_RESULT,
        OPENAI_RESULT,
        ITEM_CALL,
        ITEM_RESULT,
    ],
)
def test_results_blanks_and_what_others_say_are_no_user_input(payload: Any) -> None:
    assert not messages.is_user_input(payload)


def test_prose_leaves_out_what_went_in_and_out_of_tools() -> None:
    assert messages.text(ANTHROPIC_CALL) == "Look first.\nLet me look."
    assert messages.text(ANTHROPIC_RESULT) == ""


@pytest.mark.parametrize(
    ("payload", "model"),
    [
        ({"role": "assistant", "content": "hi", "model": "gpt-5"}, "gpt-5"),
        (PICOCLAW, "glm-5"),
        (LANGCHAIN_CALL, "claude-opus-5"),
        ({"role": "model", "parts": [], "modelVersion": "gemini-3"}, "gemini-3"),
        ({"role": "user", "content": "hi", "model": "gpt-5"}, None),
        ({"role": "assistant", "content": "hi"}, None),
        ({"role": "assistant", "content": "hi", "model": 5}, None),
        (["model"], None),
    ],
)
def test_an_assistant_message_names_its_model(payload: Any, model: str | None) -> None:
    assert messages.model(payload) == model


# Mending. A conversation of a shape is made of these pieces, given the ids of calls.


def openai_turn(*ids: str, said: str | None = None) -> dict[str, Any]:
    made = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": said, **({"tool_calls": made} if made else {})}


def openai_result(*ids: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": id, "content": f"done {id}"} for id in ids]


def anthropic_turn(*ids: str, said: str | None = None) -> dict[str, Any]:
    made: list[dict[str, Any]] = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ids]
    return {
        "role": "assistant",
        "content": [*([{"type": "text", "text": said}] if said is not None else []), *made],
    }


def anthropic_result(*ids: str, said: str | None = None) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": id, "content": f"done {id}"} for id in ids
    ]
    return [
        {
            "role": "user",
            "content": [*blocks, *([{"type": "text", "text": said}] if said is not None else [])],
        }
    ]


def gemini_turn(*names: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in names]}


def gemini_result(*names: str) -> list[dict[str, Any]]:
    made = [{"functionResponse": {"name": name, "response": {"result": "done"}}} for name in names]
    return [{"role": "user", "parts": made}]


HELLO = {"role": "user", "content": "hello"}
GEMINI_HELLO = {"role": "user", "parts": [{"text": "hello"}]}
ITEM_HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}

ACCEPTABLE = {
    "openai": [
        {"role": "system", "content": "Be brief."},
        HELLO,
        openai_turn("c1", "c2", said=""),
        *openai_result("c2", "c1"),
        openai_turn(said="Done."),
    ],
    "openai legacy": [
        HELLO,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ],
    "responses": [
        ITEM_HELLO,
        ITEM_REASONING,
        ITEM_CALL,
        {**ITEM_CALL, "id": "fc_2", "call_id": "call_2"},
        ITEM_RESULT,
        {**ITEM_RESULT, "call_id": "call_2"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ],
    "anthropic": [HELLO, ANTHROPIC_CALL, ANTHROPIC_RESULT, anthropic_turn(said="Done.")],
    "anthropic, results in several messages": [
        HELLO,
        anthropic_turn("t1", "t2"),
        *anthropic_result("t1"),
        *anthropic_result("t2", said="and now?"),
    ],
    "anthropic, the assistant in several messages": [
        anthropic_turn("t1"),
        anthropic_turn("t2"),
        *anthropic_result("t1", "t2"),
    ],
    "anthropic, thinking that was cut off earlier": [
        HELLO,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
        HELLO,
    ],
    "gemini": [GEMINI_HELLO, gemini_turn("f", "f", "g"), *gemini_result("f", "f", "g"), GEMINI_HELLO],
    "gemini, a signature without text": [
        GEMINI_HELLO,
        {"role": "model", "parts": [{"text": "", "thoughtSignature": "s"}]},
    ],
    "ggcode": [ACOLYTE, GGCODE_CALL, GGCODE_RESULT],
    "picoclaw": [
        ACOLYTE,
        PICOCLAW,
        {"role": "tool", "content": "", "tool_call_id": "c1", "created_at": "now"},
    ],
    "langchain": [{"type": "human", "data": {"content": "hi"}}, LANGCHAIN_CALL, LANGCHAIN_RESULT],
    "nobody's": [{"event": "clicked"}, "hi", None, 7, ["x"], {"role": "narrator", "content": ""}],
}


@pytest.mark.rule("H10")
@pytest.mark.parametrize("conversation", ACCEPTABLE.values(), ids=ACCEPTABLE)
def test_what_is_acceptable_comes_back_equal(conversation: list[Any]) -> None:
    assert repair(conversation) == conversation


@pytest.mark.rule("H10")
@pytest.mark.parametrize(
    "orphan",
    [
        *openai_result("c9"),
        *anthropic_result("t9"),
        *gemini_result("g"),
        {**ITEM_RESULT, "call_id": "call_9"},
        GGCODE_RESULT,
        LANGCHAIN_RESULT,
        {"role": "function", "name": "f", "content": "1"},
    ],
)
def test_a_result_without_its_call_goes(orphan: Any) -> None:
    assert repair([orphan, HELLO, orphan]) == [HELLO]


@pytest.mark.rule("H10")
def test_what_else_is_in_a_message_with_an_orphan_result_stays() -> None:
    assert repair(anthropic_result("t9", said="go on")) == [
        {"role": "user", "content": [{"type": "text", "text": "go on"}]}
    ]


@pytest.mark.rule("H10")
def test_a_second_result_of_a_call_goes() -> None:
    assert repair([openai_turn("c1"), *openai_result("c1", "c1")]) == [
        openai_turn("c1"),
        *openai_result("c1"),
    ]


INTERRUPTIONS = [
    (openai_turn("c1"), {"role": "tool", "tool_call_id": "c1", "content": INTERRUPTED}),
    (
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": INTERRUPTED},
    ),
    (ITEM_CALL, {"type": "function_call_output", "call_id": "call_1", "output": INTERRUPTED}),
    (
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": INTERRUPTED},
    ),
    (
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c1", "output": INTERRUPTED},
    ),
    (
        ANTHROPIC_CALL,
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": INTERRUPTED, "is_error": True}
            ],
        },
    ),
    (
        GEMINI_CALL,
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"error": INTERRUPTED}}}]},
    ),
    (
        GGCODE_CALL,
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_id": "t1",
                    "tool_name": "ls",
                    "output": INTERRUPTED,
                    "is_error": True,
                }
            ],
        },
    ),
    (
        LANGCHAIN_CALL,
        {
            "type": "tool",
            "data": {"content": INTERRUPTED, "tool_call_id": "t1", "name": "ls", "status": "error"},
        },
    ),
]


@pytest.mark.rule("H10")
@pytest.mark.parametrize(("call", "answer"), INTERRUPTIONS)
def test_a_call_without_a_result_is_answered_in_its_own_form(call: Any, answer: Any) -> None:
    assert repair([call, HELLO]) == [call, answer, HELLO]


@pytest.mark.rule("H10")
@pytest.mark.parametrize(("call", "answer"), INTERRUPTIONS)
def test_a_call_that_nothing_follows_is_answered_too(call: Any, answer: Any) -> None:
    assert repair([HELLO, call]) == [HELLO, call, answer]


@pytest.mark.rule("H10")
@pytest.mark.parametrize(("call", "answer"), INTERRUPTIONS)
def test_such_an_answer_reads_as_the_result_of_its_call(call: Any, answer: Any) -> None:
    assert messages.results(answer) == messages.calls(call)
    assert read(answer).role == "tool"


@pytest.mark.rule("H10")
def test_a_missing_result_joins_those_that_are_there() -> None:
    mended = repair([anthropic_turn("t1", "t2"), *anthropic_result("t1", said="go on")])
    assert [messages.results(message) for message in mended] == [(), ("t1", "t2")]
    assert messages.user_text(mended[1]) == "go on"


@pytest.mark.rule("H10")
def test_a_computer_call_that_was_interrupted_goes_with_its_reasoning() -> None:
    call = {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "screenshot"}}
    assert repair([ITEM_HELLO, ITEM_REASONING, call]) == [ITEM_HELLO]


@pytest.mark.rule("H10")
def test_a_result_is_moved_behind_its_call() -> None:
    (result,) = openai_result("c1")
    assert repair([openai_turn("c1"), HELLO, result]) == [openai_turn("c1"), result, HELLO]


@pytest.mark.rule("H10")
def test_a_result_block_is_moved_out_of_a_later_message() -> None:
    assert repair([anthropic_turn("t1"), HELLO, *anthropic_result("t1", said="go on")]) == [
        anthropic_turn("t1"),
        *anthropic_result("t1"),
        HELLO,
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    ]


@pytest.mark.rule("H10")
def test_results_come_before_text_where_anthropic_wants_them_first() -> None:
    result = anthropic_result("t1")[0]["content"][0]
    text = {"type": "text", "text": "go on"}
    mended = repair([anthropic_turn("t1"), {"role": "user", "content": [text, result]}])
    assert mended[1]["content"] == [result, text]


@pytest.mark.rule("H10")
def test_gemini_gets_all_results_of_a_message_in_one() -> None:
    apart = [*gemini_result("f"), *gemini_result("g")]
    assert repair([gemini_turn("f", "g"), *apart]) == [gemini_turn("f", "g"), *gemini_result("f", "g")]


@pytest.mark.rule("H10")
@pytest.mark.parametrize(
    "empty",
    [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": " \n"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "parts": [{"text": ""}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]},
        {"type": "human", "data": {"content": ""}},
        {**ACOLYTE, "content": ""},
    ],
)
def test_a_message_without_anything_in_it_goes(empty: Any) -> None:
    assert repair([HELLO, empty, HELLO]) == [HELLO, HELLO]


@pytest.mark.rule("H10")
def test_blank_texts_go_and_the_rest_of_the_message_stays() -> None:
    assert repair([anthropic_turn("t1", said=""), *anthropic_result("t1", said=" ")]) == [
        anthropic_turn("t1"),
        *anthropic_result("t1"),
    ]


@pytest.mark.rule("H10")
def test_blank_texts_go_from_within_a_result() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": ""}]}
    mended = repair([anthropic_turn("t1"), {"role": "user", "content": [block]}])
    assert mended[1]["content"] == [{**block, "content": []}]


@pytest.mark.rule("H10")
def test_an_empty_result_is_a_result() -> None:
    conversation = [openai_turn("c1"), {"role": "tool", "tool_call_id": "c1", "content": ""}]
    assert repair(conversation) == conversation


@pytest.mark.rule("H10")
def test_tool_calls_beside_a_blank_text_stay() -> None:
    call = {**openai_turn("c1"), "content": [{"type": "text", "text": ""}]}
    assert repair([call, *openai_result("c1")]) == [{**call, "content": ""}, *openai_result("c1")]


@pytest.mark.rule("H10")
def test_the_second_pair_of_an_id_gets_a_fresh_one() -> None:
    pair = [openai_turn("c1"), *openai_result("c1")]
    mended = repair([*pair, HELLO, *pair])
    assert [messages.calls(message) for message in mended] == [("c1",), (), (), ("c1_2",), ()]
    assert [messages.results(message) for message in mended] == [(), ("c1",), (), (), ("c1_2",)]


@pytest.mark.rule("H10")
@pytest.mark.parametrize(
    "pair",
    [
        [ITEM_CALL, ITEM_RESULT],
        [ANTHROPIC_CALL, ANTHROPIC_RESULT],
        [GGCODE_CALL, GGCODE_RESULT],
        [LANGCHAIN_CALL, LANGCHAIN_RESULT],
        [
            {"role": "model", "parts": [{"function_call": {"id": "g1", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"function_response": {"id": "g1", "name": "f", "response": {}}}]},
        ],
    ],
)
def test_doubled_ids_are_mended_in_every_form(pair: list[Any]) -> None:
    mended = repair([*pair, *pair])
    made = [id for message in mended for id in messages.calls(message)]
    answered = [id for message in mended for id in messages.results(message)]
    assert made == answered
    assert len(set(made)) == 2


@pytest.mark.rule("H10")
def test_two_calls_of_one_id_in_one_message_share_out_the_results() -> None:
    mended = repair([openai_turn("c1", "c1"), *openai_result("c1", "c1")])
    assert [read(message).parts[0].id for message in mended[1:]] == ["c1", "c1_2"]


@pytest.mark.rule("H10")
def test_a_fresh_id_is_one_that_nobody_has() -> None:
    mended = repair([openai_turn("c1", "c1_2", "c1"), *openai_result("c1", "c1_2", "c1")])
    assert messages.calls(mended[0]) == ("c1", "c1_2", "c1_3")


@pytest.mark.rule("H10")
def test_gemini_without_ids_is_left_to_pair_by_name() -> None:
    conversation = [gemini_turn("f"), *gemini_result("f"), gemini_turn("f"), *gemini_result("f")]
    assert repair(conversation) == conversation


@pytest.mark.rule("H10")
def test_thinking_at_the_very_end_goes() -> None:
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    assert repair([HELLO, thinking]) == [HELLO]


@pytest.mark.rule("H10")
def test_a_reasoning_item_that_leads_to_nothing_goes() -> None:
    assert repair([ITEM_HELLO, ITEM_REASONING, ITEM_HELLO]) == [ITEM_HELLO, ITEM_HELLO]


SEARCHING = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "Searching."},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "a"}},
    ],
}


@pytest.mark.rule("H10")
def test_a_search_of_the_provider_may_go_on_at_the_end() -> None:
    assert repair([HELLO, SEARCHING]) == [HELLO, SEARCHING]


@pytest.mark.rule("H10")
def test_a_search_of_the_provider_that_was_left_behind_goes() -> None:
    assert repair([SEARCHING, HELLO]) == [anthropic_turn(said="Searching."), HELLO]


@pytest.mark.rule("H10")
def test_what_is_not_recognised_stays_where_it_is() -> None:
    note = {"event": "clicked"}
    (result,) = openai_result("c1")
    assert repair([note, openai_turn("c1"), note, result, ""]) == [note, openai_turn("c1"), result, note, ""]


# For lists of any kind: what a provider checks, written down once more and without the code above.

IDS = st.sampled_from(["a", "b", "c", ""])
TEXTS = st.sampled_from(["", " ", "hello"])


@st.composite
def openai_messages(draw: st.DrawFn) -> dict[str, Any]:
    match draw(st.integers(0, 3)):
        case 0:
            return {"role": "user", "content": draw(TEXTS)}
        case 1:
            return openai_turn(*draw(st.lists(IDS, max_size=3)), said=draw(st.none() | TEXTS))
        case 2:
            return {"role": "assistant", "content": draw(TEXTS), "function_call": {"name": draw(IDS)}}
    return {
        "role": draw(st.sampled_from(["tool", "function"])),
        "tool_call_id": draw(IDS),
        "name": "a",
        "content": "",
    }


@st.composite
def block_messages(draw: st.DrawFn) -> dict[str, Any]:
    blocks = st.one_of(
        st.builds(lambda t: {"type": "text", "text": t}, TEXTS),
        st.builds(lambda i: {"type": "tool_use", "id": i, "name": "f", "input": {}}, IDS),
        st.builds(lambda i: {"type": "tool_result", "tool_use_id": i, "content": ""}, IDS),
        st.builds(lambda i: {"type": "server_tool_use", "id": i, "name": "f", "input": {}}, IDS),
        st.builds(lambda i: {"type": "web_search_tool_result", "tool_use_id": i, "content": []}, IDS),
        st.builds(lambda i: {"type": "tool_use", "tool_id": i, "tool_name": "f", "input": {}}, IDS),
        st.builds(lambda i: {"type": "tool_result", "tool_id": i, "tool_name": "f", "output": ""}, IDS),
        st.just({"type": "thinking", "thinking": "Hm.", "signature": "s"}),
    )
    role = draw(st.sampled_from(["user", "assistant"]))
    return {"role": role, "content": draw(TEXTS | st.lists(blocks, max_size=4))}


@st.composite
def gemini_messages(draw: st.DrawFn) -> dict[str, Any]:
    parts = st.one_of(
        st.builds(lambda t: {"text": t}, TEXTS),
        st.builds(lambda n: {"functionCall": {"name": n, "args": {}}}, IDS),
        st.builds(lambda n: {"functionResponse": {"name": n, "response": {}}}, IDS),
        st.builds(lambda n, i: {"functionCall": {"id": i, "name": n, "args": {}}}, IDS, IDS),
        st.builds(lambda n, i: {"functionResponse": {"id": i, "name": n, "response": {}}}, IDS, IDS),
    )
    return {"role": draw(st.sampled_from(["user", "model"])), "parts": draw(st.lists(parts, max_size=4))}


ITEMS = st.one_of(
    st.builds(lambda t: {"type": "message", "role": "user", "content": t}, TEXTS),
    st.builds(lambda t: {"type": "message", "role": "assistant", "content": t}, TEXTS),
    st.just(ITEM_REASONING),
    st.builds(lambda i: {**ITEM_CALL, "call_id": i}, IDS),
    st.builds(lambda i: {**ITEM_RESULT, "call_id": i}, IDS),
    st.builds(lambda i: {"type": "computer_call", "call_id": i, "action": {}}, IDS),
    st.builds(lambda i: {"type": "web_search_call", "id": i, "status": "completed"}, IDS),
)
LANGCHAIN = st.one_of(
    st.builds(lambda t: {"type": "human", "data": {"content": t}}, TEXTS),
    st.builds(
        lambda t, ids: {
            "type": "ai",
            "content": t,
            "tool_calls": [{"name": "f", "args": {}, "id": i} for i in ids],
        },
        TEXTS,
        st.lists(IDS, max_size=3),
    ),
    st.builds(lambda i: {"type": "tool", "content": "", "tool_call_id": i}, IDS),
    st.builds(
        lambda i: {"type": "ai", "data": {"content": [{"type": "tool_use", "id": i, "name": "f"}]}}, IDS
    ),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role content text parts type data tool_calls function_call id call_id tool_use_id input "
                "name function functionCall functionResponse response output source summary media "
                "attachments image_url file audio status kind value images inlineData x "
                "reasoning_content".split()
            ),
            inner
            | st.sampled_from(
                "user assistant tool model function human ai message text thinking tool_use tool_result "
                "image document file reasoning function_call function_call_output mcp_call computer_call "
                "server_tool_use web_search_tool_result image_generation_call refusal".split()
            ),
            max_size=5,
        )
    ),
    max_leaves=12,
)
CONVERSATIONS = st.one_of(
    st.lists(openai_messages(), max_size=8),
    st.lists(block_messages(), max_size=8),
    st.lists(gemini_messages(), max_size=8),
    st.lists(ITEMS, max_size=8),
    st.lists(LANGCHAIN, max_size=8),
    st.lists(
        openai_messages() | block_messages() | gemini_messages() | ITEMS | LANGCHAIN | JSON, max_size=10
    ),
)


@given(JSON)
def test_no_json_value_makes_the_reading_raise(payload: Any) -> None:
    for shape in (None, *sorted(messages.SHAPES), "other"):
        message = read(payload, shape)
        assert all(
            isinstance(field, str) for part in message.parts for field in (part.text, part.id, part.media)
        )
        assert isinstance(messages.user_text(payload, shape), str)
        assert isinstance(messages.is_user_input(payload, shape), bool)
        assert isinstance(messages.text(payload, shape), str)
        messages.calls(payload, shape)
        messages.results(payload, shape)
    messages.model(payload)


@given(JSON)
def test_what_a_person_said_is_the_text_of_their_message(payload: Any) -> None:
    message = read(payload)
    said = "\n".join(part.text for part in message.parts if part.kind == "text")
    theirs = message.role == "user" and message.shape != "" and said.strip() != ""
    assert messages.user_text(payload) == (said if theirs else "")


@pytest.mark.rule("H10")
@given(CONVERSATIONS)
def test_mending_twice_is_mending_once_and_changes_no_input(conversation: list[Any]) -> None:
    before = copy.deepcopy(conversation)
    mended = repair(conversation)
    assert conversation == before
    assert repair(mended) == mended


@pytest.mark.rule("H10")
@given(st.lists(openai_messages().filter(lambda m: "function_call" not in m), max_size=10))
def test_openai_finds_every_call_answered_right_behind_it(conversation: list[Any]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in repair(conversation):
        if message["role"] in ("tool", "function"):
            if message.get("tool_call_id") and message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        ids = [call["id"] for call in message.get("tool_calls", ()) if call["id"]]
        assert seen.isdisjoint(ids)
        assert len(set(ids)) == len(ids)
        seen.update(ids)
        open_calls += [id for id in ids if id]


@st.composite
def anthropic_messages(draw: st.DrawFn) -> dict[str, Any]:
    ids = st.sampled_from(["a", "b", "c"])
    text = st.builds(lambda t: {"type": "text", "text": t}, TEXTS)
    use = st.builds(lambda i: {"type": "tool_use", "id": i, "name": "f", "input": {}}, ids)
    result = st.builds(lambda i: {"type": "tool_result", "tool_use_id": i, "content": "done"}, ids)
    thinking = st.just({"type": "thinking", "thinking": "Hm.", "signature": "s"})
    if draw(st.booleans()):
        return {"role": "user", "content": draw(TEXTS | st.lists(text | result, max_size=4))}
    return {"role": "assistant", "content": draw(TEXTS | st.lists(text | use | thinking, max_size=4))}


@pytest.mark.rule("H10")
@given(st.lists(anthropic_messages(), max_size=10))
def test_anthropic_finds_every_call_answered_first_thing_in_the_next_turn(conversation: list[Any]) -> None:
    turns: list[tuple[str, list[Any]]] = []  # messages of one role in a row are one to it
    for message in repair(conversation):
        assert message["content"]
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], []))
        content = message["content"]
        turns[-1][1].extend([{"type": "text", "text": content}] if isinstance(content, str) else content)
    seen: set[str] = set()
    asked: list[str] = []
    for role, blocks in turns:
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        if role == "user":
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert sorted(answered) == sorted(asked)
            assert [block["type"] for block in blocks[: len(answered)]] == ["tool_result"] * len(answered)
            asked = []
        else:
            assert not asked
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
            assert len({*asked, *seen}) == len(asked) + len(seen)
            seen.update(asked)
    assert not asked
    assert not turns or turns[-1][1][-1]["type"] != "thinking"


@pytest.mark.rule("H10")
@given(st.lists(ITEMS, max_size=10))
def test_responses_finds_as_many_outputs_as_calls(conversation: list[Any]) -> None:
    mended = repair(conversation)
    made = [
        item["call_id"]
        for item in mended
        if item["type"] in ("function_call", "computer_call") and item["call_id"]
    ]
    answered = [item["call_id"] for item in mended if item["type"] == "function_call_output"]
    assert sorted(made) == sorted(answered)
    assert len(set(made)) == len(made)
