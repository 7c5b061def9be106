"""Token usage and cost: one usage object in anyone's names, and the running total of many.

Counts are taken as the provider gives them, never converted: what `input_tokens` includes differs between
providers. What is settled here is which class a name belongs to, and, where a provider gives no total, which
classes may be added up without counting a token twice. Prices live nowhere in this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

MOST = 2**63 - 1
"""The largest count that is taken for one; whoever writes more does not count tokens."""


class Usage(msgspec.Struct, omit_defaults=True):
    """What model calls took: tokens by class, calls, dollars. `cost` is None when none was ever recorded.

    `breakdown` says what the prompt was spent on, summed over the records that say so; `models` has the
    same counts for each model that was named, without `models` of their own.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cost: float | None = None
    calls: int = 0
    breakdown: dict[str, int] = {}
    models: dict[str, Usage] = {}


# Names of one class, of which the first that has a count is taken. After `_details`, a dot leads into that
# object; OpenTelemetry's dots belong to the names.
_INPUT = (
    "input_tokens",
    "prompt_tokens",
    "inputTokens",
    "promptTokens",
    "promptTokenCount",
    "prompt_token_count",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
)
_OUTPUT = (
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "completionTokens",
    "candidatesTokenCount",
    "candidates_token_count",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
)
_TOTAL = (
    "total_tokens",
    "totalTokens",
    "totalTokenCount",
    "total_token_count",
    "gen_ai.usage.total_tokens",
)
# Beside the input (Anthropic, Bedrock, ggcode, ours), or a part of it (OpenAI, Gemini, OpenTelemetry).
_CACHE_READ_BESIDE = (
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cache_read_tokens",
    "cacheReadTokens",
)
_CACHE_READ_WITHIN = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "input_token_details.cache_read",
    "cachedInputTokens",
    "prompt_cache_hit_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
)
_CACHE_WRITE_BESIDE = (
    "cache_creation_input_tokens",
    "cacheCreationInputTokens",
    "cacheWriteInputTokens",
    "cache_write_tokens",
    "cacheWriteTokens",
)
_CACHE_WRITE_WITHIN = (
    "prompt_tokens_details.cache_write_tokens",
    "input_tokens_details.cache_write_tokens",
    "input_token_details.cache_creation",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
)
# Beside the output (Gemini), or a part of it (everyone else).
_REASONING_BESIDE = ("thoughtsTokenCount", "thoughts_token_count")
_REASONING_WITHIN = (
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "output_token_details.reasoning",
    "reasoning_tokens",
    "reasoningTokens",
    "thinking_tokens",
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
)
_WHOLE_INPUT = ("prompt_tokens_total",)  # ggcode's name for the input with everything cached
_INCLUSIVE_INPUT = frozenset(("prompt_tokens", "promptTokens"))  # whoever says so counts as OpenAI does
_CALLS = ("calls", "model_calls", "modelCalls")
_COST = (
    "cost",
    "cost_usd",
    "costUSD",
    "costUsd",
    "total_cost",
    "total_cost_usd",
    "totalCostUsd",
    "usd",
    "gen_ai.usage.cost",
    "gen_ai.usage.cost_usd",
)
_MODEL = ("model", "model_name", "gen_ai.response.model", "gen_ai.request.model")
_WRAPPERS = ("usage", "usageMetadata", "usage_metadata", "token_usage", "tokenUsage")
_BREAKDOWNS = ("breakdown", "promptBreakdown", "prompt_breakdown")
_BREAKDOWN = ("budget", "used", "system", "tool", "skill", "memory", "message")

_TOKENS = (
    *_INPUT,
    *_OUTPUT,
    *_TOTAL,
    *_CACHE_READ_BESIDE,
    *_CACHE_READ_WITHIN,
    *_CACHE_WRITE_BESIDE,
    *_CACHE_WRITE_WITHIN,
    *_REASONING_BESIDE,
    *_REASONING_WITHIN,
    *_WHOLE_INPUT,
)
_SPELLED: dict[str, tuple[str, ...]] = {part: (f"{part}Tokens", f"{part}_tokens") for part in _BREAKDOWN}
_SPELLED["budget"] += ("inputBudgetTokens",)
_COUNTED = frozenset((*_TOKENS, *_CALLS, *(name for names in _SPELLED.values() for name in names)))
_DETAILS = frozenset(name.partition(".")[0] for name in _TOKENS if "_details." in name)
_KNOWN = _COUNTED | _DETAILS | frozenset((*_COST, *_BREAKDOWNS))


def understand(raw: Mapping[str, Any]) -> Usage:
    """One usage object, in the names of OpenAI, Anthropic, Gemini, OpenTelemetry, agents, or ours.

    - An object may hold the usage in a member (`usage`, `usageMetadata` …) with calls, cost or a breakdown
      beside it; the inner one is asked first.
    - Negative numbers, booleans, strings, fractions of a token and what is not finite are not counted.
      A known name is enough to be understood, even if its value is null or cannot be counted.
    - A missing total is input and output, and what this provider counts beside them: Anthropic's cache
      tokens (ggcode's and ours too), Gemini's thoughts. OpenAI's and OpenTelemetry's cached and reasoning
      tokens are parts of input and output already.
    - Without an explicit number of calls it is one call; an explicit 0 is none.
    - Where it names its model, or has counts by model, `models` says so.

    >>> understand({"prompt_tokens": 12, "completion_tokens": 3}).total_tokens
    15
    >>> understand({"input_tokens": 12, "output_tokens": 3, "cache_read_input_tokens": 100}).total_tokens
    115

    `ValueError` when there is no field that it knows.
    """
    places = list(_places(raw))
    if all(_KNOWN.isdisjoint(place) for place in places):
        raise ValueError(
            "no field of this usage is known; it takes for example input_tokens and output_tokens, "
            "prompt_tokens and completion_tokens, total_tokens, cost"
        )
    counts = _counts(places)
    name_of_input, given = _first(counts, _INPUT)
    _, output = _first(counts, _OUTPUT)
    read, read_beside = _either(counts, _CACHE_READ_BESIDE, _CACHE_READ_WITHIN)
    written, written_beside = _either(counts, _CACHE_WRITE_BESIDE, _CACHE_WRITE_WITHIN)
    reasoning, reasoning_beside = _either(counts, _REASONING_BESIDE, _REASONING_WITHIN)
    _, whole = _first(counts, _WHOLE_INPUT)
    _, total = _first(counts, _TOTAL)
    if total is None:
        total = (whole or given or 0) + (output or 0) + reasoning_beside
        if not whole and name_of_input not in _INCLUSIVE_INPUT:
            total += read_beside + written_beside
    _, calls = _first(counts, _CALLS)
    usage = Usage(
        input_tokens=given or 0,
        output_tokens=output or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        total_tokens=total,
        cost=_cost(places),
        calls=1 if calls is None else calls,
        breakdown=_breakdown(places, counts),
    )
    usage.models = _models(places, usage)
    return usage


def add(total: Usage, one: Usage, model: str | None) -> Usage:
    """Both together, as a new Usage. `model` is who gets it, unless `one` says itself which model it was.

    >>> add(Usage(input_tokens=1, calls=1), Usage(input_tokens=2, calls=1), "gpt-5").input_tokens
    3
    """
    both = _sum(total, one)
    models = one.models or ({model: one} if model else {})
    if models or total.models:
        both.models = dict(total.models)
        for name, used in models.items():
            both.models[name] = _sum(both.models.get(name, Usage()), used)
    return both


def advance(total: Usage, raw: Any, model: str | None) -> Usage:
    """The total after one more usage object, as stored; one that is not understood counts nothing."""
    try:
        one = understand(raw)
    except ValueError:
        return total
    return add(total, one, model)


def _sum(a: Usage, b: Usage) -> Usage:
    """Both together, without `models`."""
    return Usage(
        input_tokens=a.input_tokens + b.input_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        cache_read_tokens=a.cache_read_tokens + b.cache_read_tokens,
        cache_write_tokens=a.cache_write_tokens + b.cache_write_tokens,
        reasoning_tokens=a.reasoning_tokens + b.reasoning_tokens,
        total_tokens=a.total_tokens + b.total_tokens,
        cost=b.cost if a.cost is None else a.cost if b.cost is None else _money(a.cost, b.cost),
        calls=a.calls + b.calls,
        breakdown={
            name: a.breakdown.get(name, 0) + b.breakdown.get(name, 0)
            for name in _BREAKDOWN
            if name in a.breakdown or name in b.breakdown
        },
    )


def _money(a: float, b: float) -> float:
    """The sum as a person makes it, in decimals: it comes out the same in whatever order it is made."""
    from decimal import Decimal  # many never say what anything costs

    return float(Decimal(repr(a)) + Decimal(repr(b))) if a and b else a or b


def _places(raw: Any) -> Iterator[Mapping[str, Any]]:
    """Where counts may be: inside a wrapper first, then the object itself."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"a usage is an object with token counts, not {type(raw).__name__}")
    for name in _WRAPPERS:
        inner = raw.get(name)
        if isinstance(inner, Mapping):
            yield inner
    yield raw


def _counts(places: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Every known name that has a count, with that of the first place that has one."""
    found: dict[str, int] = {}
    for place in places:
        for name, value in place.items():
            if name in _COUNTED:
                counted = _count(value)
                if counted is not None:
                    found.setdefault(name, counted)
            elif name in _DETAILS and isinstance(value, Mapping):
                for inner, detail in value.items():
                    counted = _count(detail)
                    if counted is not None:
                        found.setdefault(f"{name}.{inner}", counted)
    return found


def _first(counts: Mapping[str, int], names: Iterable[str]) -> tuple[str, int | None]:
    """The first of these names that has a count, and the count."""
    for name in names:
        if name in counts:
            return name, counts[name]
    return "", None


def _either(counts: Mapping[str, int], beside: Iterable[str], within: Iterable[str]) -> tuple[int, int]:
    """The count of a class, and how much of it is beside input and output instead of a part of them.

    Who gives the same count under both kinds of name (as proxies do) counts it within.
    """
    _, inner = _first(counts, within)
    _, outer = _first(counts, beside)
    if inner is not None and (outer is None or outer == inner):
        return inner, 0
    return outer or 0, outer or 0


def _count(value: Any) -> int | None:
    """A number of tokens or calls; a whole float is one, as JavaScript writes them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        if not value.is_integer():  # also what is not finite
            return None
        value = int(value)
    return value if 0 <= value <= MOST else None


def _cost(places: Iterable[Mapping[str, Any]]) -> float | None:
    for place in places:
        for name in _COST:
            value = place.get(name)
            for dollars in (value.get("total"), value.get("usd")) if isinstance(value, Mapping) else (value,):
                if isinstance(dollars, bool) or not isinstance(dollars, int | float):
                    continue
                if 0 <= dollars < 1e15:  # neither NaN nor infinite, and no sum of many is
                    return float(dollars)
    return None


def _breakdown(places: Iterable[Mapping[str, Any]], counts: Mapping[str, int]) -> dict[str, int]:
    """What the prompt was spent on: ours `{"used": …}`, Acolyte's `{"usedTokens": …}`, nested or flat."""
    given = [
        inner for place in places for name in _BREAKDOWNS if isinstance(inner := place.get(name), Mapping)
    ]
    found: dict[str, int] = {}
    for part, spelled in _SPELLED.items():
        nested = (_count(inner.get(name)) for inner in given for name in (part, *spelled))
        flat = (counts[name] for name in spelled if name in counts)
        counted = next((count for count in (*nested, *flat) if count is not None), None)
        if counted is not None:
            found[part] = counted
    return found


def _models(places: list[Mapping[str, Any]], usage: Usage) -> dict[str, Usage]:
    """Counts by model where they are given (ours), else all of it under the model that is named."""
    for place in places:
        given = place.get("models")
        if isinstance(given, Mapping):
            found: dict[str, Usage] = {}
            for name, raw in given.items():
                try:
                    found[name] = _sum(Usage(), understand(raw))
                except ValueError:
                    continue
            if found:
                return found
    for place in places:
        for key in _MODEL:
            name = place.get(key)
            if isinstance(name, str) and name:
                return {name: _sum(Usage(), usage)}
    return {}
