"""What a message says, whoever's form it has: who speaks, and what, piece by piece.

Every JSON value can be read; what nobody's form explains is kept as `other`, or not recognised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

SHAPES = frozenset(("openai", "openai-responses", "anthropic", "gemini", "plain"))


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
HOSTED_CALLS = frozenset(  # run by the provider; the item has the outcome too
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call".split()
)
_OUTPUTS = frozenset(f"{kind}_output" for kind in _CLIENT_CALLS) | {"tool_search_output"}
_ASIDES = frozenset(
    "mcp_list_tools mcp_approval_request mcp_approval_response item_reference compaction".split()
)
_ITEMS = _CLIENT_CALLS | HOSTED_CALLS | _OUTPUTS | _ASIDES | {"reasoning"}

# Blocks of a content list, by `type`. The names do not collide between providers, so one table reads all.
TEXTS = frozenset(("text", "input_text", "output_text", "summary_text"))
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
CALL_IDS = ("call_id", "tool_id", "tool_call_id", "toolCallId", "id")
RESULT_IDS = ("tool_use_id", "call_id", "tool_id", "tool_call_id", "toolCallId", "approval_request_id")
TOOL_NAMES = ("name", "tool_name", "toolName")
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
    if item_kind(payload):
        return "openai-responses"
    content = payload.get("content")
    parts = payload.get("parts")
    if content is None and isinstance(parts, list | tuple) and _are_gemini(parts):
        role = payload.get("role")
        if isinstance(role, str) and role in _ROLES:
            return "gemini"
        if role is None and any(is_dict(part) and not _GEMINI_MEMBERS.isdisjoint(part) for part in parts):
            return "gemini"
    role, body = speaker_of(payload)
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
    item = item_kind(payload)
    if item:
        return Message(role_of_item(item), tuple(_parts_of_item(item, payload)), found)
    role, body = speaker_of(payload)
    parts = parts_of_message(role, body)
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
        if isinstance(content, str) and not is_blank(content) and (len(payload) == 2 or recognise(payload)):
            return content
    message = read(payload, shape)
    if message.role != "user" or not message.shape:
        return ""
    said = "\n".join(part.text for part in message.parts if part.kind == "text")
    return "" if is_blank(said) else said


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
        part.kind != "result" and not (part.kind == "text" and is_blank(part.text)) for part in message.parts
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
    role, body = speaker_of(payload)
    if role != "assistant":
        return None
    for place in (body, body.get("response_metadata")):
        if isinstance(place, dict):
            name = first_text(place, ("model", "model_name", "modelVersion", "model_version"))
            if name:
                return name
    return None


def item_kind(payload: dict[str, Any]) -> str:
    """The type of a bare Responses item, or "". Kinds of calls that are not in the table yet look alike."""
    kind = payload.get("type")
    if not isinstance(kind, str) or payload.get("role") is not None:
        return ""
    if kind in _ITEMS:
        return kind
    like_a_call = kind.endswith(("_call", "_call_output")) and kind != "tool_call"
    return kind if like_a_call and isinstance(payload.get("call_id"), str) else ""


def role_of_item(kind: str) -> str:
    if kind.endswith("_output"):
        return "tool"
    if kind == "item_reference":
        return ""
    return "user" if kind == "mcp_approval_response" else "assistant"


def speaker_of(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
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


def parts_of_message(role: str, body: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    thought = first_text(body, ("reasoning_content", "reasoning", "thinking"))
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
            id = first_text(body, RESULT_IDS)
            _add_result(parts, id, first_text(body, TOOL_NAMES), content, _failed(body))
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
            parts += [call for entry in listed if (call := part_of_call(entry)).id not in made or not call.id]
    if isinstance(body.get("function_call"), dict):
        parts.append(part_of_call(body["function_call"]))
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
        if isinstance(given, dict) and first_text(given, ("ref",)) not in seen:
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
    if kind in TEXTS:
        said = text_of_block(block)
        if said:
            parts.append(Part("text", said))
        elif said is None:
            parts.append(Part("other"))
    elif kind in _REASONING:
        parts.append(Part("reasoning", _thought(block)))
    elif kind == "refusal":
        parts.append(Part("text", first_text(block, ("refusal",))))
    elif kind in _CALL_BLOCKS or kind in _HOSTED_BLOCKS:
        _, id, name = pairing_of(block)
        parts.append(Part("call", _input(block), id or name, name))
    elif kind in _RESULT_BLOCKS or kind.endswith("_tool_result"):
        _, id, name = pairing_of(block)
        value = next((block[k] for k in _RESULTS if block.get(k) is not None), None)
        _add_result(parts, id, name, value, _failed(block), depth, block.get("images"))
    elif kind in _IMAGES:
        parts.append(_attachment("image", block))
    elif kind in _FILES:
        parts.append(_attachment("file", block))
    else:
        parts.append(Part("other", text_of_block(block) or ""))


def _read_gemini(part: dict[str, Any], parts: list[Part], depth: int) -> None:
    way, id, name = pairing_of(part)
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
        parts.append(Part("result", first_text(ran, ("output",)), name=name, error=failed))
    elif any(isinstance(part.get(name), dict) for name in _GEMINI_MEDIA):
        parts.append(_attachment("file", part))
    else:
        parts.append(Part("other"))


def part_of_call(entry: Any) -> Part:
    """An entry of `tool_calls` (OpenAI's and LangChain's), or a legacy `function_call`."""
    if not isinstance(entry, dict):
        return Part("other")
    inner = _member(entry, "function", "custom") or entry
    name = first_text(inner, TOOL_NAMES)
    return Part("call", _input(inner), first_text(entry, CALL_IDS) or name, name)


def _parts_of_item(kind: str, item: dict[str, Any]) -> list[Part]:
    id = first_text(item, ("call_id", "id"))
    name = first_text(item, TOOL_NAMES)
    parts: list[Part] = []
    if kind == "reasoning":
        return [Part("reasoning", _thought(item))]
    if kind.endswith("_output"):
        value = next((item[k] for k in _RESULTS if item.get(k) is not None), None)
        _add_result(parts, id, name, value, _failed(item))
        return parts
    if kind in _ASIDES:
        return [Part("other", first_text(item, ("reason",)), name=name)]
    name = name or kind.removesuffix("_call")
    parts.append(Part("call", _input(item), id, name))
    if kind in HOSTED_CALLS:
        drawn = item.get("result")
        if kind == "image_generation_call" and isinstance(drawn, str):
            mime = f"image/{first_text(item, ('output_format',)) or 'png'}"
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
                titled = [first_text(value, (name,)) for name in ("title", "url", "source")]
                texts.append(" ".join(filter(None, titled)) or _json(value))
    else:
        texts.append(_json(value))


def _ids(payload: Any, shape: str | None, kind: str) -> tuple[str, ...]:
    parts = read(payload, shape).parts
    return tuple(dict.fromkeys(part.id for part in parts if part.kind == kind and part.id))


def is_blank(said: str) -> bool:
    return not said or said.isspace()


def first_text(place: dict[str, Any], names: Iterable[str]) -> str:
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


def text_of_block(block: dict[str, Any]) -> str | None:
    """The text of a text block, "" where it has none, None where what it has is no text."""
    value = block.get("text")
    if value is None:
        value = block.get("content")
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else "" if value is None else None


def _thought(block: dict[str, Any]) -> str:
    """The readable reasoning in a block or an item; "" where it is encrypted or left out."""
    given = first_text(block, ("thinking", "text", "reasoning", "content"))
    if given:
        return given
    found: list[str] = []
    for name in ("summary", "content"):
        listed = block.get(name)
        for piece in listed if isinstance(listed, list | tuple) else ():
            said = piece if isinstance(piece, str) else first_text(piece, ("text",)) if is_dict(piece) else ""
            if said:
                found.append(said)
    return "\n\n".join(found)


def is_dict(value: Any) -> bool:
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
    mime = next(filter(None, (first_text(place, _MIMES) for place in places)), "")
    if not mime:
        encoding = next(filter(None, (first_text(place, ("format",)) for place in places)), "")
        mime = f"audio/{encoding}" if encoding else ""
    name = next(filter(None, (first_text(place, _FILE_NAMES) for place in places)), "")
    name = name or next(filter(None, (first_text(place, _FILE_IDS) for place in places)), "")
    source = _member(block, "source")
    written = ""
    if source.get("type") in ("text", "content"):
        texts: list[str] = []
        given = source.get("data") if source["type"] == "text" else source.get("content")
        _read_output(given, texts, [], _DEEPEST - 2)
        written = "\n".join(texts)
        media = ""
    else:
        media = next(filter(None, (first_text(place, _URLS) for place in places)), "")
        if not media:
            given = next(filter(None, (first_text(place, _BYTES) for place in places)), "")
            media = _as_media(given, mime) if given else ""
    if not mime and media.startswith("data:"):
        mime = media[5:200].partition(",")[0].partition(";")[0]
    return Part("image" if mime.startswith("image/") else kind, written, "", name, media, mime)


def _as_media(given: str, mime: str) -> str:
    return given if given.startswith("data:") or "://" in given[:32] else f"data:{mime};base64,{given}"


def pairing_of(block: Any) -> tuple[str, str, str]:
    """Whether a block is a call or a result (hosted: run by the provider itself), its id and its name."""
    if not isinstance(block, dict):
        return "", "", ""
    kind = block.get("type")
    if isinstance(kind, str):
        name = first_text(block, TOOL_NAMES)
        if kind in _CALL_BLOCKS:
            return "call", first_text(block, CALL_IDS), name
        if kind in _RESULT_BLOCKS:
            return "result", first_text(block, RESULT_IDS), name
        if kind in _HOSTED_BLOCKS:
            return "hosted call", first_text(block, CALL_IDS), name
        if kind.endswith("_tool_result"):
            return "hosted result", first_text(block, RESULT_IDS), name or kind.removesuffix("_tool_result")
        return "", "", ""
    for way, names in GEMINI_PAIRS:
        for spelled in names:
            inner = block.get(spelled)
            if isinstance(inner, dict):
                return way, first_text(inner, ("id",)), first_text(inner, ("name",))
    for way, names in _GEMINI_HOSTED:
        if any(isinstance(block.get(spelled), dict) for spelled in names):
            return way, "", "code_execution"
    return "", "", ""


GEMINI_PAIRS = (
    ("call", ("functionCall", "function_call")),
    ("result", ("functionResponse", "function_response")),
)
_GEMINI_HOSTED = (
    ("hosted call", ("executableCode", "executable_code")),
    ("hosted result", ("codeExecutionResult", "code_execution_result")),
)
_GEMINI_MEMBERS = frozenset(
    ("text", *_GEMINI_MEDIA, *(name for _, names in (*GEMINI_PAIRS, *_GEMINI_HOSTED) for name in names))
)
