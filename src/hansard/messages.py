"""The provider-neutral reading of one message, and the mending of a list of them.

A payload is whatever an application handed in: a message of OpenAI's Chat Completions, an item of OpenAI's
Responses, a message of Anthropic's or Gemini's, one of an agent's own making, or something else entirely.
What it says is read here and nowhere else; nothing here ever changes a payload, and no JSON value makes it
raise. What follows from a message (a title, a history, a search) is the business of the views.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

SHAPES = frozenset(("openai", "openai-responses", "anthropic", "gemini", "plain"))

INTERRUPTED = "The call was interrupted and gave no result."
"""What `repair` answers a call with that was never answered."""


class Part(msgspec.Struct, frozen=True):
    """One piece of a message.

    `kind` is text, reasoning, call, result, image, file or other. `text` is the text, the input of a call
    (compact JSON, or as given when that is a string) or the output of a result. `id` pairs a call with its
    result; where a provider pairs by name, it is the name. `media` is a URL or a `data:` URI. A result with
    several images is several parts of the same id, of which the first has the text.
    """

    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    media: str = ""
    mime: str = ""
    error: bool = False


class Message(msgspec.Struct, frozen=True):
    """A message as read: who speaks, and what.

    `role` is user, assistant, system, tool, or "" when nothing says so. A message in a user's name that has
    nothing but tool results has the role tool: no person speaks in it. `shape` is one of `SHAPES`, or "".
    """

    role: str
    parts: tuple[Part, ...]
    shape: str


_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
# LangChain names the speaker in `type`, with the message under `data` or beside it.
_SPEAKERS = {
    "human": "user",
    "HumanMessageChunk": "user",
    "user": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "assistant": "assistant",
    "system": "system",
    "SystemMessageChunk": "system",
    "developer": "system",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessageChunk": "tool",
}
# A message with other members is an application's own, however much it resembles OpenAI's.
_OPENAI_MEMBERS = frozenset(
    "role content name tool_calls tool_call_id function_call refusal audio annotations reasoning_content "
    "reasoning reasoning_details".split()
)
# Items of the Responses API that stand alone, without a role.
_CLIENT_CALLS = frozenset(
    "function_call custom_tool_call computer_call local_shell_call shell_call apply_patch_call "
    "tool_search_call".split()
)
_HOSTED_CALLS = frozenset(  # run by the provider; the item has the outcome too
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call".split()
)
_OUTPUTS = frozenset(f"{kind}_output" for kind in _CLIENT_CALLS) | {"tool_search_output"}
_ASIDES = frozenset(
    "mcp_list_tools mcp_approval_request mcp_approval_response item_reference compaction".split()
)
_ITEMS = _CLIENT_CALLS | _HOSTED_CALLS | _OUTPUTS | _ASIDES | {"reasoning"}

# Blocks of a content list, by `type`. The names do not collide between providers, so one table reads all.
_TEXTS = frozenset(("text", "input_text", "output_text", "summary_text"))
_REASONING = frozenset(("thinking", "redacted_thinking", "reasoning", "reasoning_text"))
_CALL_BLOCKS = frozenset(("tool_use", "tool_call", "tool-call"))
_HOSTED_BLOCKS = frozenset(("server_tool_use", "mcp_tool_use"))
_RESULT_BLOCKS = frozenset(("tool_result", "tool-result"))
_IMAGES = frozenset(("image", "image_url", "input_image", "image_file", "computer_screenshot"))
_FILES = frozenset(
    "document file input_file input_audio audio audio_url video video_url input_video media "
    "container_upload".split()
)
_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
# Blocks that only one shape has.
_SIGNS = {
    "input_text": "openai-responses",
    "output_text": "openai-responses",
    "input_image": "openai-responses",
    "input_file": "openai-responses",
    "image_url": "openai",
    "input_audio": "openai",
    "refusal": "openai",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "document": "anthropic",
    "server_tool_use": "anthropic",
    "mcp_tool_use": "anthropic",
    "container_upload": "anthropic",
    "search_result": "anthropic",
    "reasoning": "plain",
    "tool_call": "plain",
    "tool-call": "plain",
    "tool-result": "plain",
}
_CALL_IDS = ("call_id", "tool_id", "tool_call_id", "toolCallId", "id")
_RESULT_IDS = ("tool_use_id", "call_id", "tool_id", "tool_call_id", "toolCallId", "approval_request_id")
_TOOL_NAMES = ("name", "tool_name", "toolName")
_INPUTS = "arguments input args parameters action actions operation code queries query".split()
_RESULTS = "output content result results outputs tools".split()

_DEEPEST = 6  # levels of blocks within results that are read; beyond, a result is its JSON


def recognise(payload: Any) -> str:
    """Whose message form this is, one of `SHAPES`, or "" when nobody's.

    A message that has nothing but a role and a text is everybody's, and counts as OpenAI's; with members
    that OpenAI does not have it is "plain", an application's own.

    >>> recognise({"role": "user", "parts": [{"text": "hi"}]})
    'gemini'
    """
    if not isinstance(payload, dict):
        return ""
    if _item(payload):
        return "openai-responses"
    content = payload.get("content")
    parts = payload.get("parts")
    if content is None and isinstance(parts, list | tuple) and _are_gemini(parts):
        role = payload.get("role")
        if isinstance(role, str) and role in _ROLES:
            return "gemini"
        if role is None and any(_is_dict(part) and not _GEMINI_MEMBERS.isdisjoint(part) for part in parts):
            return "gemini"
    role, body = _speaker(payload)
    if not role:
        return ""
    if not isinstance(payload.get("role"), str):
        return "plain" if body is not payload or "content" in payload else ""
    if isinstance(content, list | tuple):
        return _shape_of_blocks(payload, content)
    if payload.get("type") == "message" and content is not None:
        return "openai-responses"
    if payload.keys() <= _OPENAI_MEMBERS:
        return "openai" if len(payload) > 1 else ""
    said = ("content", "text", "parts", "tool_calls", "function_call", "reasoning_content", "media")
    return "plain" if any(payload.get(name) is not None for name in (*said, "attachments")) else ""


def read(payload: Any, shape: str | None = None) -> Message:
    """What a message says. `shape` is believed where it names a known one and the payload is a message.

    >>> read({"role": "user", "content": "Build a login page"}).parts[0].text
    'Build a login page'
    """
    found = recognise(payload)
    if found and shape in SHAPES:
        found = shape
    if isinstance(payload, str):
        return Message("", (Part("text", payload),) if payload else (), "")
    if not isinstance(payload, dict):
        return Message("", (), "")
    item = _item(payload)
    if item:
        return Message(_role_of_item(item), tuple(_parts_of_item(item, payload)), found)
    role, body = _speaker(payload)
    parts = _parts_of_message(role, body)
    if role == "user" and parts and all(part.kind == "result" for part in parts):
        role = "tool"
    return Message(role, tuple(parts), found)


def user_text(payload: Any, shape: str | None = None) -> str:
    """What a person said in it: the text of a user's message without tool results, "" if there is none."""
    if not isinstance(payload, dict):
        return ""
    role = payload.get("role")
    if isinstance(role, str):  # most messages are answered here, without reading them
        if _ROLES.get(role) != "user":
            return ""
        content = payload.get("content")
        if isinstance(content, str) and not _blank(content) and recognise(payload):
            return content
    message = read(payload, shape)
    if message.role != "user" or not message.shape:
        return ""
    said = "\n".join(part.text for part in message.parts if part.kind == "text")
    return "" if _blank(said) else said


def is_user_input(payload: Any, shape: str | None = None) -> bool:
    """Whether someone put something in: a user's message that is more than tool results and blank text.

    A payload that is not recognised may be anything, and one that does not say who speaks anyone's: both
    count.
    """
    if not recognise(payload):
        return True
    role = payload.get("role")
    if isinstance(role, str) and _ROLES.get(role) != "user":
        return False
    message = read(payload, shape)
    return message.role in ("user", "") and any(
        part.kind != "result" and not (part.kind == "text" and _blank(part.text)) for part in message.parts
    )


def text(payload: Any, shape: str | None = None) -> str:
    """All prose in it, reasoning included, without the input and output of tools and what is in files."""
    said = (part.text for part in read(payload, shape).parts if part.kind in ("text", "reasoning", "other"))
    return "\n".join(piece for piece in said if piece)


def calls(payload: Any, shape: str | None = None) -> tuple[str, ...]:
    """The ids of the tool calls made in it. Where a provider has none, the names."""
    return _ids(payload, shape, "call")


def results(payload: Any, shape: str | None = None) -> tuple[str, ...]:
    """The ids of the tool calls answered in it. Where a provider has none, the names.

    A call that the provider runs itself is made and answered in one item, and is in both lists.
    """
    return _ids(payload, shape, "result")


def model(payload: Any) -> str | None:
    """The model that an assistant's message says it is from."""
    if not isinstance(payload, dict):
        return None
    role, body = _speaker(payload)
    if role != "assistant":
        return None
    for place in (body, body.get("response_metadata")):
        if isinstance(place, dict):
            name = _string(place, ("model", "model_name", "modelVersion", "model_version"))
            if name:
                return name
    return None


def _item(payload: dict[str, Any]) -> str:
    """The type of a bare Responses item, or "". Kinds of calls that are not in the table yet look alike."""
    kind = payload.get("type")
    if not isinstance(kind, str) or payload.get("role") is not None:
        return ""
    if kind in _ITEMS:
        return kind
    like_a_call = kind.endswith(("_call", "_call_output")) and kind != "tool_call"
    return kind if like_a_call and isinstance(payload.get("call_id"), str) else ""


def _role_of_item(kind: str) -> str:
    if kind.endswith("_output"):
        return "tool"
    if kind == "item_reference":
        return ""
    return "user" if kind == "mcp_approval_response" else "assistant"


def _speaker(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Who speaks, or "", and the object that has the content: the payload, or LangChain's `data` in it."""
    role = payload.get("role")
    if isinstance(role, str):
        return _ROLES.get(role, ""), payload
    kind = payload.get("type")
    if isinstance(kind, str) and kind in _SPEAKERS:
        data = payload.get("data")
        return _SPEAKERS[kind], data if isinstance(data, dict) else payload
    return "", payload


def _are_gemini(parts: Sequence[Any]) -> bool:
    """Gemini's parts say by their members what they are; those of others have a `type` or a `kind`."""
    return all(
        isinstance(part, str) or (isinstance(part, dict) and "type" not in part and "kind" not in part)
        for part in parts
    )


def _shape_of_blocks(payload: dict[str, Any], blocks: Sequence[Any]) -> str:
    hint = ""
    for block in blocks:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if not isinstance(kind, str):
            continue
        if kind == "file":
            return "openai" if isinstance(block.get("file"), dict) else "plain"
        if kind == "image":
            return "anthropic" if isinstance(block.get("source"), dict) else "plain"
        if kind == "tool_use" or kind.endswith("tool_result"):
            return "plain" if "tool_id" in block else "anthropic"
        if kind in _SIGNS and not (kind == "refusal" and payload.get("type") == "message"):
            return _SIGNS[kind]
        if "cache_control" in block or "citations" in block:
            hint = "anthropic"
    if payload.get("type") == "message":
        return "anthropic" if "stop_reason" in payload else "openai-responses"
    if hint and _ROLES.get(payload["role"]) in ("user", "assistant"):
        return hint
    return "openai" if payload.keys() <= _OPENAI_MEMBERS else "plain"


def _parts_of_message(role: str, body: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    thought = _string(body, ("reasoning_content", "reasoning", "thinking"))
    if thought:
        parts.append(Part("reasoning", thought))
    content = body.get("content")
    if content is None or content == "" or content == []:
        content = next((body[k] for k in ("parts", "text") if body.get(k) is not None), content)
    before = len(parts)
    _read_content(content, parts)
    if role == "tool" and not any(part.kind == "result" for part in parts):
        del parts[before:]
        if content is not None or "tool_call_id" in body:
            id = _string(body, _RESULT_IDS)
            _add_result(parts, id, _string(body, _TOOL_NAMES), content, _failed(body))
    refusal = body.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append(Part("text", refusal))
    audio = body.get("audio")
    if isinstance(audio, dict):
        transcript = audio.get("transcript")
        if isinstance(transcript, str) and transcript and not content:
            parts.append(Part("text", transcript))
        parts.append(_attachment("file", {**audio, "format": audio.get("format", "wav")}))
    _read_attached(body, parts)
    made = {part.id for part in parts if part.kind == "call"}  # LangChain repeats those in the content
    for name in ("tool_calls", "invalid_tool_calls"):
        listed = body.get(name)
        if isinstance(listed, list | tuple):
            parts += [call for entry in listed if (call := _tool_call(entry)).id not in made or not call.id]
    if isinstance(body.get("function_call"), dict):
        parts.append(_tool_call(body["function_call"]))
    return parts


def _read_content(content: Any, parts: list[Part]) -> None:
    if isinstance(content, list | tuple):
        for block in content:
            _read_block(block, parts)
    elif content is not None:
        _read_block(content, parts)


def _read_attached(body: dict[str, Any], parts: list[Part]) -> None:
    """picoclaw's `media` and `attachments`; an attachment is often in both."""
    seen = set()
    media = body.get("media")
    for given in media if isinstance(media, list | tuple) else ():
        if isinstance(given, str) and given:
            seen.add(given)
            mime = given[5:200].partition(",")[0].partition(";")[0] if given.startswith("data:") else ""
            is_image = mime.startswith("image/") or given[-5:].lower().endswith(_IMAGE_ENDINGS)
            parts.append(Part("image" if is_image else "file", media=given, mime=mime))
    attachments = body.get("attachments")
    for given in attachments if isinstance(attachments, list | tuple) else ():
        if isinstance(given, dict) and _string(given, ("ref",)) not in seen:
            part = _attachment("image" if given.get("type") == "image" else "file", given)
            if part.media not in seen:
                parts.append(part)


def _read_block(block: Any, parts: list[Part], depth: int = 0) -> None:
    """One block of a content list (or a content that is a single block), appended as one or more parts."""
    if isinstance(block, str):
        if block:
            parts.append(Part("text", block))
        return
    if not isinstance(block, dict):
        if block is not None:
            parts.append(Part("other"))
        return
    kind = block.get("type", block.get("kind"))
    if not isinstance(kind, str):
        _read_gemini(block, parts, depth)
        return
    thought = block.get("reasoning_content")
    if isinstance(thought, str) and thought:
        parts.append(Part("reasoning", thought))
    if kind in _TEXTS:
        said = _said(block)
        if said:
            parts.append(Part("text", said))
        elif said is None:
            parts.append(Part("other"))
    elif kind in _REASONING:
        parts.append(Part("reasoning", _thought(block)))
    elif kind == "refusal":
        parts.append(Part("text", _string(block, ("refusal",))))
    elif kind in _CALL_BLOCKS or kind in _HOSTED_BLOCKS:
        _, id, name = _pairing(block)
        parts.append(Part("call", _input(block), id or name, name))
    elif kind in _RESULT_BLOCKS or kind.endswith("_tool_result"):
        _, id, name = _pairing(block)
        value = next((block[k] for k in _RESULTS if block.get(k) is not None), None)
        _add_result(parts, id, name, value, _failed(block), depth, block.get("images"))
    elif kind in _IMAGES:
        parts.append(_attachment("image", block))
    elif kind in _FILES:
        parts.append(_attachment("file", block))
    else:
        parts.append(Part("other", _said(block) or ""))


def _read_gemini(part: dict[str, Any], parts: list[Part], depth: int) -> None:
    way, id, name = _pairing(part)
    said = part.get("text")
    if isinstance(said, str):
        if said:
            parts.append(Part("reasoning" if part.get("thought") is True else "text", said))
    elif way == "call":
        parts.append(Part("call", _input(_member(part, "functionCall", "function_call")), id or name, name))
    elif way == "result":
        given = _member(part, "functionResponse", "function_response")
        value = given.get("response")
        failed = isinstance(value, dict) and len(value) == 1 and "error" in value
        if isinstance(value, dict) and len(value) == 1:
            (only,) = value.values()  # {"result": "…"}: the wrapper that the provider asks for
            value = only if isinstance(only, str) else value
        _add_result(parts, id, name, value, failed, depth, given.get("parts"))
    elif way == "hosted call":
        parts.append(Part("call", _input(_member(part, "executableCode", "executable_code")), name=name))
    elif way == "hosted result":
        ran = _member(part, "codeExecutionResult", "code_execution_result")
        outcome = ran.get("outcome")
        failed = isinstance(outcome, str) and not outcome.endswith("OK")
        parts.append(Part("result", _string(ran, ("output",)), name=name, error=failed))
    elif any(isinstance(part.get(name), dict) for name in _GEMINI_MEDIA):
        parts.append(_attachment("file", part))
    else:
        parts.append(Part("other"))


def _tool_call(entry: Any) -> Part:
    """An entry of `tool_calls` (OpenAI's and LangChain's), or a legacy `function_call`."""
    if not isinstance(entry, dict):
        return Part("other")
    inner = _member(entry, "function", "custom") or entry
    name = _string(inner, _TOOL_NAMES)
    return Part("call", _input(inner), _string(entry, _CALL_IDS) or name, name)


def _parts_of_item(kind: str, item: dict[str, Any]) -> list[Part]:
    id = _string(item, ("call_id", "id"))
    name = _string(item, _TOOL_NAMES)
    parts: list[Part] = []
    if kind == "reasoning":
        return [Part("reasoning", _thought(item))]
    if kind.endswith("_output"):
        value = next((item[k] for k in _RESULTS if item.get(k) is not None), None)
        _add_result(parts, id, name, value, _failed(item))
        return parts
    if kind in _ASIDES:
        return [Part("other", _string(item, ("reason",)), name=name)]
    name = name or kind.removesuffix("_call")
    parts.append(Part("call", _input(item), id, name))
    if kind in _HOSTED_CALLS:
        drawn = item.get("result")
        if kind == "image_generation_call" and isinstance(drawn, str):
            mime = f"image/{_string(item, ('output_format',)) or 'png'}"
            parts.append(Part("result", "", id, name, _as_media(drawn, mime), mime, _failed(item)))
        else:
            value = next((item[k] for k in ("error", *_RESULTS) if item.get(k) is not None), None)
            _add_result(parts, id, name, value, _failed(item))
    return parts


def _add_result(
    parts: list[Part],
    id: str,
    name: str,
    value: Any,
    error: bool,
    depth: int = 0,
    images: Any = None,
) -> None:
    texts: list[str] = []
    seen: list[tuple[str, str]] = []
    _read_output(value, texts, seen, depth + 1)
    for image in images if isinstance(images, list | tuple) else ():
        if isinstance(image, dict):
            shown = _attachment("image", image)
            seen.append((shown.media, shown.mime))
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        error = error or value["type"].startswith("error-") or value["type"].endswith("_error")
    media, mime = seen[0] if seen else ("", "")
    parts.append(Part("result", "\n".join(texts), id or name, name, media, mime, error))
    parts += [Part("result", "", id or name, name, media, mime, error) for media, mime in seen[1:]]


def _read_output(value: Any, texts: list[str], media: list[tuple[str, str]], depth: int) -> None:
    """What a tool gave back: texts, and images and files among them."""
    if value is None:
        return
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list | tuple) and depth < _DEEPEST:
        for inner in value:
            _read_output(inner, texts, media, depth + 1)
    elif isinstance(value, dict) and isinstance(value.get("type"), str) and depth < _DEEPEST:
        if "value" in value:
            _read_output(value["value"], texts, media, depth + 1)
            return
        shown: list[Part] = []
        _read_block(value, shown, depth + 1)
        for part in shown:
            if part.media:
                media.append((part.media, part.mime))
            if part.text:
                texts.append(part.text)
            elif part.kind == "other":
                titled = [_string(value, (name,)) for name in ("title", "url", "source")]
                texts.append(" ".join(filter(None, titled)) or _json(value))
    else:
        texts.append(_json(value))


def _ids(payload: Any, shape: str | None, kind: str) -> tuple[str, ...]:
    parts = read(payload, shape).parts
    return tuple(dict.fromkeys(part.id for part in parts if part.kind == kind and part.id))


def _blank(said: str) -> bool:
    return not said or said.isspace()


def _string(place: dict[str, Any], names: Iterable[str]) -> str:
    """The first of these members that is a text and not empty, else ""."""
    for name in names:
        value = place.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _member(place: dict[str, Any], *names: str) -> dict[str, Any]:
    """The first of these members that is an object, else an empty one."""
    for name in names:
        value = place.get(name)
        if isinstance(value, dict):
            return value
    return {}


def _said(block: dict[str, Any]) -> str | None:
    """The text of a text block, "" where it has none, None where what it has is no text."""
    value = block.get("text")
    if value is None:
        value = block.get("content")
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else "" if value is None else None


def _thought(block: dict[str, Any]) -> str:
    """The readable reasoning in a block or an item; "" where it is encrypted or left out."""
    given = _string(block, ("thinking", "text", "reasoning", "content"))
    if given:
        return given
    found: list[str] = []
    for name in ("summary", "content"):
        listed = block.get(name)
        for piece in listed if isinstance(listed, list | tuple) else ():
            said = piece if isinstance(piece, str) else _string(piece, ("text",)) if _is_dict(piece) else ""
            if said:
                found.append(said)
    return "\n\n".join(found)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _input(place: dict[str, Any]) -> str:
    for name in _INPUTS:
        value = place.get(name)
        if value is not None:
            return value if isinstance(value, str) else _json(value)
    return ""


def _failed(place: dict[str, Any]) -> bool:
    status = place.get("status")
    return (
        place.get("is_error") is True
        or place.get("isError") is True
        or (isinstance(status, str) and status in ("error", "failed"))
    )


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    try:  # integers beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return ""


_GEMINI_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
_WITHIN = (
    *_GEMINI_MEDIA,
    "source",
    "file",
    "image_url",
    "image_file",
    "video_url",
    "audio_url",
    "input_audio",
)
_MIMES = ("media_type", "mime_type", "mimeType", "mediaType", "image_mime", "mime", "content_type")
_FILE_NAMES = ("filename", "title", "displayName", "display_name", "name", "file_name")
_FILE_IDS = ("file_id", "fileId")
_URLS = "url image_url file_url fileUri file_uri uri src video_url audio_url ref".split()
_BYTES = "data image_data base64 file_data bytes image".split()


def _attachment(kind: str, block: dict[str, Any]) -> Part:
    """An image or a file, wherever its provider puts the URL or the bytes; an id of a file is its name."""
    places = [block, *(inner for name in _WITHIN if isinstance(inner := block.get(name), dict))]
    mime = next(filter(None, (_string(place, _MIMES) for place in places)), "")
    if not mime:
        encoding = next(filter(None, (_string(place, ("format",)) for place in places)), "")
        mime = f"audio/{encoding}" if encoding else ""
    name = next(filter(None, (_string(place, _FILE_NAMES) for place in places)), "")
    name = name or next(filter(None, (_string(place, _FILE_IDS) for place in places)), "")
    source = _member(block, "source")
    written = ""
    if source.get("type") in ("text", "content"):
        texts: list[str] = []
        given = source.get("data") if source["type"] == "text" else source.get("content")
        _read_output(given, texts, [], _DEEPEST - 2)
        written = "\n".join(texts)
        media = ""
    else:
        media = next(filter(None, (_string(place, _URLS) for place in places)), "")
        if not media:
            given = next(filter(None, (_string(place, _BYTES) for place in places)), "")
            media = _as_media(given, mime) if given else ""
    if not mime and media.startswith("data:"):
        mime = media[5:200].partition(",")[0].partition(";")[0]
    return Part("image" if mime.startswith("image/") else kind, written, "", name, media, mime)


def _as_media(given: str, mime: str) -> str:
    return given if given.startswith("data:") or "://" in given[:32] else f"data:{mime};base64,{given}"


def _pairing(block: Any) -> tuple[str, str, str]:
    """Whether a block is a call or a result (hosted: run by the provider itself), its id and its name."""
    if not isinstance(block, dict):
        return "", "", ""
    kind = block.get("type")
    if isinstance(kind, str):
        name = _string(block, _TOOL_NAMES)
        if kind in _CALL_BLOCKS:
            return "call", _string(block, _CALL_IDS), name
        if kind in _RESULT_BLOCKS:
            return "result", _string(block, _RESULT_IDS), name
        if kind in _HOSTED_BLOCKS:
            return "hosted call", _string(block, _CALL_IDS), name
        if kind.endswith("_tool_result"):
            return "hosted result", _string(block, _RESULT_IDS), name or kind.removesuffix("_tool_result")
        return "", "", ""
    for way, names in _GEMINI_PAIRS:
        for spelled in names:
            inner = block.get(spelled)
            if isinstance(inner, dict):
                return way, _string(inner, ("id",)), _string(inner, ("name",))
    for way, names in _GEMINI_HOSTED:
        if any(isinstance(block.get(spelled), dict) for spelled in names):
            return way, "", "code_execution"
    return "", "", ""


_GEMINI_PAIRS = (
    ("call", ("functionCall", "function_call")),
    ("result", ("functionResponse", "function_response")),
)
_GEMINI_HOSTED = (
    ("hosted call", ("executableCode", "executable_code")),
    ("hosted result", ("codeExecutionResult", "code_execution_result")),
)
_GEMINI_MEMBERS = frozenset(
    ("text", *_GEMINI_MEDIA, *(name for _, names in (*_GEMINI_PAIRS, *_GEMINI_HOSTED) for name in names))
)


class _Slot(msgspec.Struct, eq=False):
    """A call or a result, and where it is: the whole payload, a block of it, an entry of `tool_calls`."""

    entry: int
    where: str  # "self", "block", "tool_calls" or "function_call"
    index: int
    id: str
    name: str
    group: int = 0
    other: _Slot | None = None
    fresh: str = ""  # of a call: the id that it gets because its own was taken
    stays: bool = False  # of a result: it is where it belongs


class _Entry(msgspec.Struct, eq=False):
    """A payload of the list, and what has to be known of it to put it right."""

    payload: Any
    shape: str
    role: str = ""
    body: dict[str, Any] = {}
    member: str = ""  # where the blocks are, if there are any
    blocks: Sequence[Any] = ()
    calls: list[_Slot] = []
    results: list[_Slot] = []
    repeated: dict[int, _Slot] = {}  # LangChain: entries of `tool_calls` that are in the content already
    hosted: list[tuple[str, int, str]] = []  # calls and results of the provider's own tools
    cut: set[int] = set()  # blocks that go
    added: list[Any] = []  # results that come
    substance: bool = True  # whether anything but results and blank text is in it
    group: int = 0
    gone: bool = False


def repair(payloads: list[Any]) -> list[Any]:
    """The messages as providers accept them: a new list, whose edited messages are copies.

    - A result without a call before it goes; so does a second result of the same call.
    - A result directly follows the message with its call; from elsewhere it is moved there.
    - A call without a result is answered by `INTERRUPTED`, in its own form. That holds for calls of the
      very last message too: a provider refuses them as soon as anything is said next. A `computer_call`,
      which only a picture could answer, goes instead.
    - The second call of an id gets a fresh one, and its result with it. Calls without ids (Gemini's) pair
      by name and stay without.
    - Blank texts go, and messages of which nothing is left. So does reasoning that leads to nothing:
      a Responses item with no output after it, Anthropic's thinking at the very end.
    - Tools that the provider runs pair within what the assistant says; an unfinished one is kept only at
      the end, where the provider may go on with it.

    What is acceptable already comes back equal, and what is not recognised comes back untouched.

    >>> repair([{"role": "tool", "tool_call_id": "c1", "content": "lost"}, {"role": "user", "content": "hi"}])
    [{'role': 'user', 'content': 'hi'}]
    """
    entries = [_examine(at, payload) for at, payload in enumerate(payloads)]
    _group(entries)
    _pair(entries)
    _cut_hosted(entries)
    _freshen(entries)
    after = _place_results(entries)
    mended: list[Any] = []
    for at, entry in enumerate(entries):
        if not entry.gone:
            mended += _rebuilt(entry)
        mended += after.get(at, ())
    return _without_idle_reasoning(mended)


def _examine(at: int, payload: Any) -> _Entry:
    shape = recognise(payload)
    entry = _Entry(payload, shape)
    if not shape:
        return entry
    item = _item(payload)
    if item:
        entry.role, entry.body = _role_of_item(item), payload
        slot = _Slot(at, "self", 0, _string(payload, ("call_id", "id")), _string(payload, _TOOL_NAMES))
        if item.endswith("_output"):
            entry.results.append(slot)
            entry.substance = False
        elif item not in _HOSTED_CALLS and item.endswith("_call") and _string(payload, ("call_id",)):
            entry.calls.append(slot)
        return entry
    entry.role, entry.body = _speaker(payload)
    for member in ("content", "parts"):
        blocks = entry.body.get(member)
        if isinstance(blocks, list | tuple) and (blocks or member == "parts"):
            entry.member, entry.blocks = member, blocks
            break
    for index, block in enumerate(entry.blocks):
        way, id, name = _pairing(block)
        if way == "call":
            if id or not _answered_by_id(block):  # else nothing could ever answer it
                entry.calls.append(_Slot(at, "block", index, id, name))
        elif way == "result":
            entry.results.append(_Slot(at, "block", index, id, name))
        elif way:
            entry.hosted.append((way, index, id))
        elif _is_blank(block):
            entry.cut.add(index)
    if entry.role == "tool" and not entry.results and not entry.hosted:
        id, name = _string(entry.body, _RESULT_IDS), _string(entry.body, _TOOL_NAMES)
        entry.results.append(_Slot(at, "self", 0, id, name))
        entry.cut.clear()
        entry.substance = False
        return entry
    made = {slot.id: slot for slot in entry.calls if slot.id}
    listed = entry.body.get("tool_calls")
    for index, given in enumerate(listed if isinstance(listed, list | tuple) else ()):
        call = _tool_call(given)
        if call.kind != "call":
            continue
        id = _string(given, _CALL_IDS)
        if id in made:
            entry.repeated[index] = made[id]
        else:
            entry.calls.append(_Slot(at, "tool_calls", index, id, call.name))
    legacy = entry.body.get("function_call")
    if isinstance(legacy, dict):
        entry.calls.append(_Slot(at, "function_call", 0, "", _string(legacy, _TOOL_NAMES)))
    results = {slot.index for slot in entry.results}
    entry.substance = len(entry.cut) + len(results) < len(entry.blocks) or _says_beside(entry)
    return entry


def _is_blank(block: Any) -> bool:
    """Whether a block is a text without anything in it. Gemini's may carry a signature, and are pieces of
    one text, in which a space counts."""
    if isinstance(block, str):
        return _blank(block)
    if not isinstance(block, dict):
        return False
    if "type" not in block:
        return block.get("text") == "" and block.keys() <= {"text", "thought"}
    kind = block["type"]
    if not isinstance(kind, str) or kind not in _TEXTS or block.get("reasoning_content"):
        return False
    said = _said(block)
    return said is not None and _blank(said)


def _says_beside(entry: _Entry) -> bool:
    """Whether the message says anything outside its blocks."""
    body = {**entry.body, entry.member: []} if entry.member else entry.body
    parts = _parts_of_message("" if entry.role == "tool" else entry.role, body)
    return any(not (part.kind == "text" and _blank(part.text)) for part in parts)


def _group(entries: list[_Entry]) -> None:
    """Number the stretches after which results belong: a message each, but for the providers that take
    what the assistant says in a row as one. These are the ones whose calls are blocks or items; it is not
    asked whose they are, since a message may look like another's once something in it went."""
    group = 0
    before = False
    for entry in entries:
        joins = (
            entry.role == "assistant"
            and entry.member != "parts"
            and all(call.where in ("self", "block") for call in entry.calls)
            and not _is_langchain(entry)
        )
        group += not (joins and before)
        entry.group = group
        for slot in entry.calls:
            slot.group = group
        before = joins


def _is_langchain(entry: _Entry) -> bool:
    payload = entry.payload
    return entry.body is not payload or ("content" in payload and not isinstance(payload.get("role"), str))


def _pair(entries: list[_Entry]) -> None:
    """Give each result its call: the last one of its id before it; within a message, one after the other.
    A result without an id then takes, by name, a call that is left, if there is one without an id. A result
    answers calls of its own form only: items, Gemini's parts, or messages."""
    for by_name in (False, True):
        waiting: dict[tuple[str, str], list[_Slot]] = {}
        for entry in entries:
            form = _form(entry)
            for call in entry.calls:
                key = call.name if by_name else call.id
                if key:
                    queue = waiting.setdefault((form, key), [])
                    if queue and queue[0].group != call.group:
                        queue.clear()
                    queue.append(call)
            for result in entry.results:
                if bool(result.id) == by_name:
                    continue
                queue = waiting.get((form, result.name if by_name else result.id), [])
                unanswered = (call for call in queue if call.other is None)
                found = min(unanswered, key=lambda call: bool(call.id), default=None)
                if found is not None:
                    found.other, result.other = result, found


def _form(entry: _Entry) -> str:
    if entry.shape and _item(entry.payload):
        return "item"
    return "parts" if entry.member == "parts" else "message"


def _cut_hosted(entries: list[_Entry]) -> None:
    """Cut what is left of the provider's own tools when one half is missing."""
    begun: set[str] = set()
    ended: set[str] = set()
    for entry in entries:
        for way, index, id in entry.hosted:
            if way == "hosted call":
                begun.add(id)
            elif id in begun or not id:
                ended.add(id)
            else:
                entry.cut.add(index)
    last = next((e.group for e in reversed(entries) if e.substance), 0)
    for entry in entries:
        if entry.group != last:
            unfinished = (i for way, i, id in entry.hosted if way == "hosted call" and id and id not in ended)
            entry.cut.update(unfinished)
        if entry.hosted and entry.cut:
            left = len(entry.blocks) - len(entry.cut) - len(entry.results)
            entry.substance = left > 0 or _says_beside(entry)


def _freshen(entries: list[_Entry]) -> None:
    """Find an id for each call whose own is taken by an earlier one."""
    every = [call for entry in entries for call in entry.calls]
    taken = {call.id for call in every}
    seen: set[str] = set()
    used: dict[str, int] = {}
    for call in every:
        if call.id and call.id in seen:
            stem = call.id[:36]  # OpenAI takes 40 characters
            number = used.get(stem, 1) + 1
            while (fresh := f"{stem}_{number}") in taken:
                number += 1
            used[stem] = number
            taken.add(fresh)
            call.fresh = fresh
        seen.add(call.id)


def _place_results(entries: list[_Entry]) -> dict[int, list[Any]]:
    """Decide where each result goes: it stays, joins its siblings, or is among what is returned, the new
    messages to put after the entry of that number."""
    after: dict[int, list[Any]] = {}
    at = 0
    while at < len(entries):
        group = entries[at].group
        end = at
        while end + 1 < len(entries) and entries[end + 1].group == group:
            end += 1
        made = [call for entry in entries[at : end + 1] for call in entry.calls]
        if made:
            after[end] = _answers(entries, made, end)
        at = end + 1
    return after


def _answers(entries: list[_Entry], made: list[_Slot], end: int) -> list[Any]:
    home = _home(entries, made[0].group, end + 1)
    whole: list[tuple[int, Any]] = []
    loose: list[tuple[str, str, Any]] = []  # the role, the member and the block of a message to be made
    for call in made:
        result = call.other
        if result is None:
            _answer_interrupted(entries[call.entry], call, whole, loose, len(entries))
        elif result.where == "self":
            whole.append((result.entry, _with_result_id(entries[result.entry], result)))
        elif not result.stays:
            carrier = entries[result.entry]
            role = "user" if carrier.role == "assistant" else str(carrier.payload.get("role") or "user")
            loose.append((role, carrier.member, _block_with_id(carrier.blocks[result.index], result)))
    new = [payload for _, payload in sorted(whole, key=lambda pair: pair[0])]
    if home is not None:
        home.added += [block for _, _, block in loose]
    else:
        for member in dict.fromkeys(member for _, member, _ in loose):
            role = next(role for role, which, _ in loose if which == member)
            new.append({"role": role, member: [block for _, which, block in loose if which == member]})
    return new


def _home(entries: list[_Entry], group: int, at: int) -> _Entry | None:
    """Mark the results that stand where they belong, in the messages right after the group (what will
    vanish does not count); returns the last of these messages, where further results can join."""
    home: _Entry | None = None
    for place in range(at, len(entries)):
        entry = entries[place]
        if not entry.shape:
            break
        if any(slot.where == "self" for slot in entry.results):
            continue
        mine = [slot for slot in entry.results if slot.other is not None and slot.other.group == group]
        if mine and entry.role != "assistant" and not entry.calls:
            for slot in mine:
                slot.stays = True
            home = entry
            if entry.substance or entry.shape == "gemini":  # which wants all results in one message
                break
        elif entry.substance:
            break
    return home


def _answer_interrupted(
    entry: _Entry, call: _Slot, whole: list[tuple[int, Any]], loose: list[tuple[str, str, Any]], last: int
) -> None:
    """Answer a call that nobody answered, in its own form; `last` sorts it behind the results there are."""
    id = call.fresh or call.id
    if call.where == "self":
        answer = _ITEM_ANSWERS.get(entry.payload["type"])
        if answer:
            whole.append((last, answer(id)))
        elif entry.payload["type"] == "computer_call":
            entry.gone = True
        return
    if not id and not call.name:
        return  # nothing could ever answer it
    if _is_langchain(entry):
        body = {"content": INTERRUPTED, "tool_call_id": id, "name": call.name, "status": "error"}
        nested = entry.body is not entry.payload
        whole.append((last, {"type": "tool", **({"data": body} if nested else body)}))
    elif call.where == "function_call":
        whole.append((last, {"role": "function", "name": call.name, "content": INTERRUPTED}))
    elif call.where == "tool_calls":
        pair = {"tool_call_id": id} if id else {"name": call.name}
        whole.append((last, {"role": "tool", **pair, "content": INTERRUPTED}))
    else:
        role, block = _answer_block(entry.blocks[call.index], id, call.name)
        loose.append((role, entry.member, block))


def _answered_by_id(call: dict[str, Any]) -> bool:
    """Whether a block is a call of Anthropic's, whose result names no tool."""
    return call.get("type") == "tool_use" and "tool_id" not in call


def _answer_block(made: dict[str, Any], id: str, name: str) -> tuple[str, dict[str, Any]]:
    """The block that answers a call block, and the role it is said in."""
    if "type" not in made:
        answer = {**({"id": id} if id else {}), "name": name, "response": {"error": INTERRUPTED}}
        return "user", {"functionResponse" if "functionCall" in made else "function_response": answer}
    if _answered_by_id(made):
        return "user", {"type": "tool_result", "tool_use_id": id, "content": INTERRUPTED, "is_error": True}
    if "toolCallId" in made:
        output = {"type": "error-text", "value": INTERRUPTED}
        return "tool", {"type": "tool-result", "toolCallId": id, "toolName": name, "output": output}
    return "user", {
        "type": "tool_result",
        "tool_id": id,
        "tool_name": name,
        "output": INTERRUPTED,
        "is_error": True,
    }


_ITEM_ANSWERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "function_call": lambda id: {"type": "function_call_output", "call_id": id, "output": INTERRUPTED},
    "custom_tool_call": lambda id: {"type": "custom_tool_call_output", "call_id": id, "output": INTERRUPTED},
    "local_shell_call": lambda id: {"type": "local_shell_call_output", "id": id, "output": INTERRUPTED},
    "shell_call": lambda id: {
        "type": "shell_call_output",
        "call_id": id,
        "output": [{"stdout": "", "stderr": INTERRUPTED, "outcome": {"type": "exit", "exit_code": 1}}],
    },
    "apply_patch_call": lambda id: {
        "type": "apply_patch_call_output",
        "call_id": id,
        "status": "failed",
        "output": INTERRUPTED,
    },
}


def _with_result_id(entry: _Entry, result: _Slot) -> Any:
    """A payload that is a result as a whole, with the id of its call, and in the role that answers it."""
    call = result.other
    if call is None:
        return entry.payload
    id = call.fresh or call.id
    role = entry.payload.get("role")
    if role == "function" and call.where == "tool_calls" and id:
        return {**entry.payload, "role": "tool", "tool_call_id": id}
    if role == "tool" and call.where == "function_call":
        body = {name: value for name, value in entry.payload.items() if name not in _RESULT_IDS}
        return {**body, "role": "function", "name": call.name}
    if not id or id == result.id:
        return entry.payload
    if _item(entry.payload):
        return {**entry.payload, "call_id" if "call_id" in entry.payload else "id": id}
    member = next((name for name in _RESULT_IDS if _string(entry.body, (name,))), "tool_call_id")
    body = {**entry.body, member: id}
    return body if entry.body is entry.payload else {**entry.payload, "data": body}


def _block_with_id(block: dict[str, Any], slot: _Slot) -> dict[str, Any]:
    """A block that is a call or a result with the id it is to have, and a result without blank texts."""
    call = slot.other if slot.other is not None and not slot.fresh else slot
    is_result = _pairing(block)[0] == "result"
    id = (call.fresh or call.id) if is_result else slot.fresh
    if is_result and isinstance(block.get("content"), list | tuple):
        shown = [inner for inner in block["content"] if not _is_blank(inner)]
        if len(shown) < len(block["content"]):
            block = {**block, "content": shown}
    if not id or id == slot.id:
        return block
    if "type" not in block:  # Gemini: what has no id goes without
        spelled = next(names for way, names in _GEMINI_PAIRS if way == ("result" if is_result else "call"))
        member = next(name for name in spelled if isinstance(block.get(name), dict))
        return {**block, member: {**block[member], "id": id}} if slot.id else block
    names = _RESULT_IDS if is_result else _CALL_IDS
    default = "tool_use_id" if is_result else "id"
    return {**block, next((name for name in names if _string(block, (name,))), default): id}


def _rebuilt(entry: _Entry) -> list[Any]:
    """The payload with what was decided about it; nothing when nothing of it is left."""
    payload = entry.payload
    if not entry.shape:
        return [payload]
    if any(slot.where == "self" for slot in entry.results):
        return []
    if entry.calls and entry.calls[0].where == "self":
        fresh = entry.calls[0].fresh
        if not fresh:
            return [payload]
        # Its item id is as doubled as its call id was, and may be left out.
        return [{**{name: value for name, value in payload.items() if name != "id"}, "call_id": fresh}]
    if not entry.substance and not entry.added and not any(slot.stays for slot in entry.results):
        return []
    edits: dict[str, Any] = {}
    if entry.member:
        blocks = _kept_blocks(entry)
        if len(blocks) != len(entry.blocks) or any(
            a is not b for a, b in zip(blocks, entry.blocks, strict=True)
        ):
            # An empty list is refused where tool calls stand beside it; an empty text is not.
            edits[entry.member] = blocks or ("" if entry.member == "content" else [])
    fresh_ids = {slot.index: slot.fresh for slot in entry.calls if slot.where == "tool_calls" and slot.fresh}
    fresh_ids |= {index: slot.fresh for index, slot in entry.repeated.items() if slot.fresh}
    if fresh_ids:
        listed = list(entry.body["tool_calls"])
        for index, fresh in fresh_ids.items():
            member = next(name for name in _CALL_IDS if _string(listed[index], (name,)))
            listed[index] = {**listed[index], member: fresh}
        edits["tool_calls"] = listed
    if not edits:
        return [payload]
    body = {**entry.body, **edits}
    return [body if entry.body is payload else {**payload, "data": body}]


def _kept_blocks(entry: _Entry) -> list[Any]:
    slots = {slot.index: slot for slot in (*entry.calls, *entry.results) if slot.where == "block"}
    leaving = {slot.index for slot in entry.results if not slot.stays} | entry.cut
    kept: list[Any] = []
    behind = 0  # the place after the last result
    for index, block in enumerate(entry.blocks):
        if index in leaving:
            continue
        if index in slots:
            block = _block_with_id(block, slots[index])
        kept.append(block)
        if index in slots and slots[index].stays:
            behind = len(kept)
    kept[behind:behind] = entry.added
    if entry.role != "assistant" and any(_is_dict(block) and "tool_use_id" in block for block in kept):
        kept.sort(key=lambda block: _pairing(block)[0] != "result")  # results come first there
    return kept


def _without_idle_reasoning(payloads: list[Any]) -> list[Any]:
    """Without the reasoning that providers refuse because nothing comes of it."""
    kept: list[Any] = []
    follows = ""  # who speaks next
    for payload in reversed(payloads):
        shape = recognise(payload)
        if shape == "openai-responses" and _item(payload) == "reasoning" and follows != "assistant":
            continue
        if shape and not kept and _speaker(payload)[0] == "assistant":
            payload = _without_last_thoughts(payload)
            if payload is None:
                continue
        kept.append(payload)
        follows = read(payload).role if shape else ""
    kept.reverse()
    return kept


def _without_last_thoughts(payload: dict[str, Any]) -> dict[str, Any] | None:
    blocks = payload.get("content")
    if not isinstance(blocks, list | tuple):
        return payload
    end = len(blocks)
    while (
        end and _is_dict(blocks[end - 1]) and blocks[end - 1].get("type") in ("thinking", "redacted_thinking")
    ):
        end -= 1
    if end == len(blocks):
        return payload
    return {**payload, "content": list(blocks[:end])} if end else None
