"""What is said in the tests: messages in the forms of several providers, and short ways to compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hansard.records import encode
from hansard.session import View

Message = dict[str, Any]


def user(text: str) -> Message:
    """What a person says."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """What a model says."""
    return {"role": "assistant", "content": text}


def users(*texts: str) -> list[Message]:
    """Several things that a person says."""
    return [user(text) for text in texts]


def texts(history: Iterable[Any]) -> list[Any]:
    """The content of each message."""
    return [payload["content"] for payload in history]


def count(session: View) -> int:
    """How many records there are."""
    return sum(1 for _ in session.records())


def size(session: View) -> int:
    """How many bytes of JSON all the records are."""
    return sum(len(encode(record)) for record in session.records())


def state(session: View) -> tuple[Any, ...]:
    """All that must stay as it is when a call changes nothing."""
    history = session.history()
    return list(session.records()), list(history), history.seq, history.summary, history.token_count


# -- tool calls, as the providers write them


def call(*ids: str) -> Message:
    """OpenAI's chat: the model calls tools."""
    made = [{"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def answer(id: str, text: str = "a.py") -> Message:
    """OpenAI's chat: what a tool said."""
    return {"role": "tool", "tool_call_id": id, "content": text}


def item_call(id: str) -> Message:
    """OpenAI's responses: the model calls a tool."""
    return {"type": "function_call", "call_id": id, "name": "ls", "arguments": "{}"}


def item_answer(id: str, text: str = "a.py") -> Message:
    """OpenAI's responses: what a tool said."""
    return {"type": "function_call_output", "call_id": id, "output": text}


def use(*ids: str) -> Message:
    """Anthropic: the model calls tools."""
    blocks = [{"type": "tool_use", "id": id, "name": "ls", "input": {}} for id in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, *blocks]}


def used(*ids: str) -> Message:
    """Anthropic: what the tools said, in one message."""
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": "a.py"} for id in ids]
    return {"role": "user", "content": blocks}
