"""Usage in everyone's names, and the running total of it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.views.usage import Usage, add, advance, understand

OPENAI_CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 8},
}
OPENAI_RESPONSES = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 120,
}
ANTHROPIC = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 30,
    "cache_read_input_tokens": 60,
    "output_tokens": 20,
    "service_tier": "standard",
}
GEMINI = {
    "usageMetadata": {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 12,
        "thoughtsTokenCount": 8,
        "totalTokenCount": 120,
    }
}
OTEL = {
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 60,
    "gen_ai.usage.cache_creation.input_tokens": 30,
    "gen_ai.usage.reasoning.output_tokens": 8,
}
LANGCHAIN = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_token_details": {"cache_read": 60, "cache_creation": 30},
    "output_token_details": {"reasoning": 8},
}
ACOLYTE = {
    "id": "msg_a1b2c3d4",
    "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "inputBudgetTokens": 100},
    "promptBreakdown": {
        "budgetTokens": 100,
        "usedTokens": 10,
        "systemTokens": 4,
        "toolTokens": 3,
        "skillTokens": 0,
        "memoryTokens": 1,
        "messageTokens": 2,
    },
    "modelCalls": 2,
}
GGCODE = {"input_tokens": 10, "output_tokens": 20, "cache_read_tokens": 60, "cache_write_tokens": 30}


@pytest.mark.rule("E6")
@pytest.mark.parametrize("raw", [OPENAI_CHAT, OPENAI_RESPONSES])
def test_openai_counts_cached_and_reasoning_tokens_within(raw: dict[str, Any]) -> None:
    assert understand(raw) == Usage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=60,
        reasoning_tokens=8,
        total_tokens=120,
        calls=1,
    )


@pytest.mark.rule("E6")
def test_anthropic_counts_cached_tokens_beside_the_input() -> None:
    assert understand(ANTHROPIC) == Usage(
        input_tokens=10,
        output_tokens=20,
        cache_read_tokens=60,
        cache_write_tokens=30,
        total_tokens=120,
        calls=1,
    )


@pytest.mark.rule("E6")
def test_opentelemetry_counts_everything_within() -> None:
    assert understand(OTEL) == Usage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=60,
        cache_write_tokens=30,
        reasoning_tokens=8,
        total_tokens=120,
        calls=1,
    )


@pytest.mark.rule("E6")
def test_the_older_names_of_opentelemetry_are_understood() -> None:
    usage = understand({"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3})
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 3, 10)


def test_gemini_counts_thoughts_beside_the_output() -> None:
    assert understand(GEMINI) == Usage(
        input_tokens=100,
        output_tokens=12,
        cache_read_tokens=60,
        reasoning_tokens=8,
        total_tokens=120,
        calls=1,
    )


def test_langchain_has_its_own_details() -> None:
    usage = understand(LANGCHAIN)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (60, 30, 8)


def test_ggcode_counts_cached_tokens_beside_the_input() -> None:
    usage = understand(GGCODE)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.total_tokens) == (60, 30, 120)


def test_ggcode_may_say_what_all_input_came_to() -> None:
    assert understand({**GGCODE, "input_tokens": 100, "prompt_tokens_total": 100}).total_tokens == 120


@pytest.mark.rule("E6")
@pytest.mark.parametrize("raw", [OPENAI_CHAT, OPENAI_RESPONSES, LANGCHAIN])
def test_a_missing_total_is_the_sum_without_counting_twice(raw: dict[str, Any]) -> None:
    del (given := dict(raw))["total_tokens"]
    assert understand(given).total_tokens == 120


@pytest.mark.rule("E6")
def test_a_missing_total_of_gemini_has_the_thoughts_in_it() -> None:
    del (given := dict(GEMINI["usageMetadata"]))["totalTokenCount"]
    assert understand(given).total_tokens == 120


def test_a_proxy_that_uses_openais_and_anthropics_names_counts_as_openai_does() -> None:
    raw = {"prompt_tokens": 100, "completion_tokens": 20, "cache_read_input_tokens": 60}
    assert understand(raw).total_tokens == 120


@pytest.mark.rule("E6")
def test_acolytes_calls_and_breakdown_are_kept() -> None:
    usage = understand(ACOLYTE)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.calls) == (10, 5, 15, 2)
    assert usage.breakdown == {
        "budget": 100,
        "used": 10,
        "system": 4,
        "tool": 3,
        "skill": 0,
        "memory": 1,
        "message": 2,
    }


@pytest.mark.rule("E6")
def test_a_budget_may_stand_beside_the_counts() -> None:
    assert understand({"inputTokens": 10, "inputBudgetTokens": 100}).breakdown == {"budget": 100}


@pytest.mark.parametrize(
    "raw",
    [
        {"cost": 0.25},
        {"cost_usd": 0.25},
        {"total_cost": 0.25},
        {"total_cost_usd": 0.25, "usage": {"input_tokens": 1}},
        {"usd": 0.25},
        {"costUSD": 0.25},
        {"cost": {"usd": 0.25}},
        {"usage": {"cost": 0.25}},
    ],
)
def test_a_cost_is_understood_under_many_names(raw: dict[str, Any]) -> None:
    assert understand(raw).cost == 0.25


def test_a_cost_that_was_never_recorded_is_none_and_not_zero() -> None:
    assert understand({"input_tokens": 1}).cost is None
    assert understand({"cost": 0}).cost == 0.0


@pytest.mark.parametrize(
    "value", [-1, True, False, "7", 1.5, float("nan"), float("inf"), None, [], {}, 2**2000 * -1]
)
def test_what_is_no_count_is_not_counted(value: Any) -> None:
    usage = understand({"input_tokens": value, "output_tokens": 3, "cost": value if value != 1.5 else None})
    assert usage == Usage(output_tokens=3, total_tokens=3, calls=1)


def test_a_whole_float_is_a_count() -> None:
    assert understand({"input_tokens": 3.0}).input_tokens == 3


def test_a_number_that_no_counter_holds_is_not_counted() -> None:
    usage = understand({"input_tokens": 2**63, "output_tokens": 2**63 - 1, "cost": 10**400})
    assert (usage.input_tokens, usage.total_tokens, usage.cost) == (0, 2**63 - 1, None)


@pytest.mark.rule("E6")
@pytest.mark.parametrize(
    "raw", [{}, {"model": "gpt-5"}, {"usage": {}}, {"tokens": 5}, {"usage": 5}, [], "5", None]
)
def test_an_object_without_a_known_field_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError):
        understand(raw)


def test_a_known_field_that_is_null_is_understood() -> None:
    assert understand({"input_tokens": None}) == Usage(calls=1)


@pytest.mark.rule("E6")
@pytest.mark.parametrize(
    ("raw", "calls"), [({}, 1), ({"calls": 3}, 3), ({"model_calls": 0}, 0), ({"calls": -1}, 1)]
)
def test_without_a_number_of_calls_it_is_one(raw: dict[str, Any], calls: int) -> None:
    assert understand({"input_tokens": 1, **raw}).calls == calls


@pytest.mark.rule("E6")
def test_the_model_that_the_usage_names_gets_it() -> None:
    usage = advance(Usage(), {"input_tokens": 1, "model": "gpt-5-mini"}, "gpt-5")
    assert list(usage.models) == ["gpt-5-mini"]


def test_otherwise_the_model_of_the_record_gets_it() -> None:
    usage = advance(Usage(), {"input_tokens": 1}, "gpt-5")
    assert usage.models == {"gpt-5": Usage(input_tokens=1, total_tokens=1, calls=1)}


def test_usage_of_no_model_counts_in_the_total_alone() -> None:
    usage = advance(advance(Usage(), {"input_tokens": 1}, "gpt-5"), {"input_tokens": 2}, None)
    assert usage.input_tokens == 3
    assert usage.models["gpt-5"].input_tokens == 1


def test_a_total_of_ours_can_be_added_to_another() -> None:
    total = advance(advance(Usage(), ANTHROPIC, "opus"), {**OPENAI_CHAT, "cost": 0.5, "calls": 2}, "gpt-5")
    again = advance(Usage(), msgspec.to_builtins(total), None)
    assert again == total


@pytest.mark.rule("E6")
def test_costs_breakdowns_and_calls_add_up() -> None:
    total = advance(advance(Usage(), ACOLYTE, None), {**ACOLYTE, "cost": 0.5}, None)
    assert (total.cost, total.calls, total.breakdown["used"]) == (0.5, 4, 20)


def test_what_is_not_understood_counts_nothing() -> None:
    total = Usage(input_tokens=1)
    assert advance(total, {"tokens": 5}, "gpt-5") == total
    assert advance(total, None, None) == total


def test_adding_leaves_both_as_they_were() -> None:
    total = advance(Usage(), ACOLYTE, "gpt-5")
    one = understand({**ACOLYTE, "model": "gpt-5"})
    before = copy.deepcopy((total, one))
    add(total, one, None)
    assert (total, one) == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "usage usageMetadata input_tokens prompt_tokens output_tokens total_tokens calls cost models "
                "model breakdown promptBreakdown used usedTokens cache_read_tokens prompt_tokens_details "
                "cached_tokens thoughtsTokenCount gen_ai.usage.input_tokens x".split()
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.none() | st.just("gpt-5"))
def test_no_json_value_makes_the_fold_raise(raw: Any, model: str | None) -> None:
    before = copy.deepcopy(raw)
    usage = advance(advance(Usage(), raw, model), raw, model)
    assert usage.input_tokens >= 0
    assert usage.calls >= 0
    assert usage.cost is None or 0 <= usage.cost < float("inf")
    assert all(not each.models for each in usage.models.values())
    assert repr(raw) == repr(before)


@given(st.lists(st.sampled_from([OPENAI_CHAT, ANTHROPIC, GEMINI, OTEL, GGCODE, ACOLYTE]), max_size=6))
def test_the_models_add_up_to_the_total(given: list[dict[str, Any]]) -> None:
    total = Usage()
    for number, raw in enumerate(given):
        total = advance(total, raw, f"model-{number % 2}")
    assert total.total_tokens == sum(each.total_tokens for each in total.models.values())
    assert total.calls == sum(each.calls for each in total.models.values())
