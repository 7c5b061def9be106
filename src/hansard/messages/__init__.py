"""The provider-neutral reading of a message: of the forms of OpenAI, Anthropic, Gemini and plain ones.

Pure: a payload in, an answer out. No payload makes any of this raise.
"""

from __future__ import annotations

from typing import Any

from hansard.messages.reading import (
    SHAPES,
    Message,
    Part,
    calls,
    is_user_input,
    model,
    read,
    recognise,
    results,
    text,
    user_text,
)


def repair(payloads: list[Any]) -> list[Any]:
    """The messages as providers accept them; see `hansard.messages.mending`."""
    from hansard.messages.mending import repair  # few ask for it

    return repair(payloads)


__all__ = [
    "SHAPES",
    "Message",
    "Part",
    "calls",
    "is_user_input",
    "model",
    "read",
    "recognise",
    "repair",
    "results",
    "text",
    "user_text",
]
