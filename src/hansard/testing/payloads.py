"""W1 and W7: what a payload may be, that it comes back as it was, and that nobody shares an object."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hansard.errors import InvalidPayload, SessionNotFound
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import assistant, call, count, user
from hansard.testing.world import World

MOMENT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _nested(levels: int, make: Callable[[Any], Any], inmost: Any = "x") -> Any:
    value = inmost
    for _ in range(levels):
        value = make(value)
    return value


PLAIN: dict[str, Any] = {
    "text": "Hello",
    "empty text": "",
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "2^53 + 1": 2**53 + 1,
    "2^63": 2**63,
    "2^64 - 1": 2**64 - 1,
    "2^64": 2**64,
    "beyond 2^64": 2**64 + 1,
    "below -2^63": -(2**63) - 1,
    "far beyond": 10**60 + 7,
    "far below": {"deep": [-(10**60) - 7]},
    "1.0": 1.0,
    "-0.0": -0.0,
    "0.1": 0.1,
    "largest": 1.7976931348623157e308,
    "smallest": 5e-324,
    "1e22": 1e22,
    "whole numbers and floats": [1, 1.0, True, 0, 0.0, False, None],
    "empty list": [],
    "empty object": {},
    "empty inside": {"a": [], "b": {}, "c": [[], {}], "d": None},
    "list": ["a", 1, None, [True]],
    "newlines": "one\ntwo\r\nthree\rfour\n",
    "line separators": "a\u2028b\u2029c\u0085d\x0be\x0cf",
    "quotes": '"\'`\\ \\" \\n \\u0041 \\',
    "markup": "<script>alert('&amp;')</script> ]]> <!-- -->",
    "NUL": "\x00a\x00",
    "controls": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "emoji": "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 👍🏽",
    "composed": "é ü ﬁ Å",
    "decomposed": "e\u0301 u\u0308 A\u030a",
    "many marks": "Z\u0351\u036b\u0343\u036a" * 20,
    "right to left": "שלום ‮evil‬ مرحبا",
    "byte order mark": "\ufeffa\ufeff",
    "noncharacters": "\uffff \ufdd0 \U0010ffff",
    "astral": "𝒳𐍈🀄",
    "a record": '{"kind":"history","data":{"op":"clear","parts":[]},"seq":0,"sum":"00000000"}\n',
    "a seal": 'x","at":"2026-05-01T12:00:00Z","seq":7,"sum":"3628dce5"}\n',
    "a time": "2026-05-01T12:00:00Z",
    "arguments that are not JSON": {**call("c1"), "tool_calls": [{"function": {"arguments": '{"a": '}}]},
    "long text": "All work and no play…\n" * 5_000,
    "long list": list(range(3_000)),
    "wide object": {f"key {i}": i for i in range(2_000)},
    "odd names": {
        "": 1,
        " ": 2,
        "a.b": 3,
        "$": 4,
        "\n": 5,
        "\x00": 6,
        "é": 7,
        "e\u0301": 8,
        "👍": 9,
        "0": 10,
    },
    "our names": {"kind": "session", "data": {}, "seq": -1, "sum": "0", "at": 0, "id": None, "*extra": 1},
    "order of names": {"z": 1, "a": {"y": 1, "b": 2}, "m": 3},
    "unknown fields": {"role": "oracle", "content": [{"type": "smell", "of": ["rose"]}], "x-new": {"v": 9}},
    "100 lists": _nested(100, lambda value: [value]),
    "100 objects": _nested(100, lambda value: {"a": value}),
    "100 of both": _nested(50, lambda value: {"a": [value]}),
    "100 levels and wide": [_nested(99, lambda value: [value, 1])] * 3,
}
"""Payloads that are JSON as they stand."""


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Role(StrEnum):
    USER = "user"


class Text(str):
    __slots__ = ()


class Real(float):
    __slots__ = ()


Point = namedtuple("Point", "x y")


@dataclass
class Note:
    text: str = "a"


class Struct(msgspec.Struct):
    text: str = "a"


class Model:
    """What pydantic's models look like from outside."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def model_dump(self, *, mode: str = "python", exclude_unset: bool = False) -> dict[str, Any]:
        unset = {} if exclude_unset else {"refusal": None}
        if mode == "json":
            return {**self._as_json(self.given), **unset}
        return {**self.given, **unset}

    def _as_json(self, value: Any) -> Any:
        if isinstance(value, Model):
            return value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, dict):
            return {name: self._as_json(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._as_json(item) for item in value]
        return value.isoformat() if isinstance(value, datetime) else value


class Endless(Model):
    """A model that gives itself."""

    def model_dump(self, *, mode: str = "python", exclude_unset: bool = False) -> Any:
        return self


ALIKE: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, (2, ())), [1, [2, []]]),
    "tuple inside": ({"a": ({"b": ("c",)},)}, {"a": [{"b": ["c"]}]}),
    "100 tuples": (_nested(100, lambda value: (value,)), _nested(100, lambda value: [value])),
    "named tuple": ([Point(1, "b")], [[1, "b"]]),
    "ordered": (OrderedDict([("z", 1), ("a", 2)]), {"z": 1, "a": 2}),
    "default": (defaultdict(list, {"a": (1,)}), {"a": [1]}),
    "kinds of text": ({Text("a"): Text("b"), "role": Role.USER}, {"a": "b", "role": "user"}),
    "kinds of numbers": ([Level.HIGH, Real(1.5)], [3, 1.5]),
    "model": (Model(role="user", content="Hello"), {"role": "user", "content": "Hello"}),
    "model with a time": (Model(at=MOMENT), {"at": "2026-05-01T12:00:00+00:00"}),
    "models in a model": (
        Model(role="assistant", tool_calls=[Model(id="c1", function=Model(name="ls"))]),
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "ls"}}]},
    ),
    "models in lists": ({"a": [Model(x=1), (Model(x=(2,)),)]}, {"a": [{"x": 1}, [{"x": [2]}]]}),
    "model beside a large number": ([Model(x=1), 2**70], [{"x": 1}, 2**70]),
    "100 levels with a model": (
        _nested(99, lambda value: [value], Model(x=1)),
        _nested(99, lambda value: [value], {"x": 1}),
    ),
}
"""Payloads that are not quite JSON, and what comes back."""


def _cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _generated() -> Iterator[int]:
    yield 1


REFUSED: dict[str, tuple[Any, str, str]] = {
    "datetime": ({"content": [{"ts": MOMENT}]}, "$.content[0].ts", "datetime"),
    "date": ([date(2026, 5, 1)], "$[0]", "date"),
    "time": ({"at": time(12)}, "$.at", "time"),
    "duration": ({"for": timedelta(1)}, "$.for", "timedelta"),
    "bytes": ({"role": "user", "content": b"Hello"}, "$.content", "bytes"),
    "bytearray": ({"a": bytearray(b"x")}, "$.a", "bytearray"),
    "memoryview": ({"a": memoryview(b"x")}, "$.a", "memoryview"),
    "set": ({"a": [0, {1}]}, "$.a[1]", "set"),
    "empty set": ({"a": set()}, "$.a", "set"),
    "frozenset": ({"a": frozenset()}, "$.a", "frozenset"),
    "decimal": ({"price": Decimal("1.5")}, "$.price", "Decimal"),
    "fraction": ({"price": Fraction(1, 3)}, "$.price", "Fraction"),
    "uuid": ({"id": UUID(int=0)}, "$.id", "UUID"),
    "complex": ([1j], "$[0]", "complex"),
    "object": (object(), "$", "object"),
    "namespace": ({"a": SimpleNamespace()}, "$.a", "SimpleNamespace"),
    "enum": ({"color": Color.RED}, "$.color", "Color"),
    "dataclass": ({"a": {"b": Note()}}, "$.a.b", "Note"),
    "struct": ([[Struct()]], "$[0][0]", "Struct"),
    "raw JSON": ({"a": msgspec.Raw(b"1")}, "$.a", "Raw"),
    "mapping that is no dict": ({"a": MappingProxyType({})}, "$.a", "mappingproxy"),
    "range": ({"a": range(3)}, "$.a", "range"),
    "keys": ({"a": {"b": 1}.keys()}, "$.a", "dict_keys"),
    "generator": ({"a": _generated()}, "$.a", "generator"),
    "function": ({"a": len}, "$.a", "builtin_function_or_method"),
    "class": ({"a": Model}, "$.a", "type"),
    "path": ({"a": PurePosixPath("x")}, "$.a", "PurePosixPath"),
    "ellipsis": ({"a": ...}, "$.a", "ellipsis"),
    "unset": ({"a": msgspec.UNSET}, "$.a", "UnsetType"),
    "not a number": ({"usage": [0.5, float("nan")]}, "$.usage[1]", "nan"),
    "infinity": ({"a": float("inf")}, "$.a", "inf"),
    "minus infinity": (float("-inf"), "$", "-inf"),
    "infinity of a kind": ({"a": Real("inf")}, "$.a", "inf"),
    "lone surrogate": ({"content": "a\ud800b"}, "$.content", "surrogate"),
    "reversed surrogates": ({"content": "\ude00\ud83d"}, "$.content", "surrogate"),
    "surrogate pair": (["\ud83d\ude00"], "$[0]", "surrogate"),
    "lone surrogate in a name": ({"a": {"\udfff": 1}}, "$.a['\\udfff']", "surrogate"),
    "number as a name": ({"a": {1: "b"}}, "$.a[1]", "int"),
    "true as a name": ({True: "b"}, "$[True]", "bool"),
    "float as a name": ({"a": [{1.5: "b"}]}, "$.a[0][1.5]", "float"),
    "null as a name": ({None: "b"}, "$[None]", "NoneType"),
    "tuple as a name": ({("a", "b"): "c"}, "$[('a', 'b')]", "tuple"),
    "bytes as a name": ({b"a": 1}, "$[b'a']", "bytes"),
    "time as a name": ({MOMENT: 1}, f"$[{MOMENT!r}]", "datetime"),
    "enum as a name": ({Color.RED: 1}, f"$[{Color.RED!r}]", "Color"),
    "under an odd name": ({"a b": {"": [b""]}}, "$['a b'][''][0]", "bytes"),
    "under a quoted name": ({"it's": b""}, '$["it\'s"]', "bytes"),
    "inside tuples": ({"a": ({"b": (1, {2})},)}, "$.a[0].b[1]", "set"),
    "inside a model": ({"a": Model(x=[b""])}, "$.a.x[0]", "bytes"),
    "inside an inner model": (Model(a=[Model(x=float("nan"))]), "$.a[0].x", "nan"),
    "beside a large number": ({"n": 2**70, "x": b""}, "$.x", "bytes"),
    "the first of several": ({"a": 1, "b": [b""], "c": {2}}, "$.b[0]", "bytes"),
    "101 lists": (_nested(101, lambda value: [value]), "$" + "[0]" * 100, "100 levels"),
    "101 objects": (_nested(101, lambda value: {"a": value}), "$" + ".a" * 100, "100 levels"),
    "101 of both": (
        {"b": _nested(50, lambda value: {"a": [value]})},
        "$.b" + ".a[0]" * 49 + ".a",
        "100 levels",
    ),
    "101 tuples": (_nested(101, lambda value: (value,)), "$" + "[0]" * 100, "100 levels"),
    "101 levels in one place": (
        [[], {}, _nested(100, lambda value: [value])],
        "$[2]" + "[0]" * 99,
        "100 levels",
    ),
    "a model at the 101st": (
        _nested(100, lambda value: [value], Model(x=1)),
        "$" + "[0]" * 100,
        "100 levels",
    ),
    "a model that gives itself": ({"a": Endless()}, "$.a", "Endless"),
    "20000 lists": (_nested(20_000, lambda value: [value]), "$" + "[0]" * 100, "100 levels"),
    "a list within itself": (_cyclic(), "$" + "[0]" * 100, "100 levels"),
}
"""Payloads that JSON cannot carry unchanged, where that is so, and a word of why."""


def _payloads(store: Store, id: str) -> list[str]:
    return [repr(payload) for payload in store.read(id).history()]


# -- W1: accepted


@pytest.mark.rule("W1")
@pytest.mark.parametrize("name", PLAIN)
def test_a_payload_comes_back_as_it_was(world: World, name: str) -> None:
    payload = PLAIN[name]
    told = repr(payload)  # 1, 1.0 and True are equal, and not the same
    store = world.store()
    with store.create("s") as session:
        assert repr(session.append(payload).data) == told
        assert repr(session.extend([payload, user("Hello")])[0].data) == told
        assert [repr(said) for said in session.history()] == [told, told, repr(user("Hello"))]
        assert repr(session.history(limit=2)[0]) == told
        assert [repr(record.data) for record in session.records(kinds="message")][:2] == [told, told]
        found = session.get(1)
        assert found is not None
        assert repr(found.data) == told
    again = world.reopened().read("s")
    assert [repr(said) for said in again.history()] == [told, told, repr(user("Hello"))]
    assert [repr(record.data) for record in again.records(after=0, before=2)] == [told]


@pytest.mark.rule("W1", "H3")
@pytest.mark.parametrize("name", PLAIN)
def test_a_payload_written_into_a_checkpoint_comes_back_as_it_was(world: World, name: str) -> None:
    payload = PLAIN[name]
    with world.store().create("s") as session:
        session.append(user("Hello"))
        session.checkpoint([payload, payload])
        assert [repr(said) for said in session.history()] == [repr(payload)] * 2
        assert repr(session.history(limit=1)) == repr([payload])
    assert [repr(said) for said in world.reopened().read("s").history()] == [repr(payload)] * 2


@pytest.mark.rule("W1", "H5")
@pytest.mark.parametrize("name", PLAIN)
def test_a_payload_that_is_saved_in_a_list_comes_back_as_it_was(world: World, name: str) -> None:
    payload = PLAIN[name]
    with world.store().create("s") as session:
        session.set_history([payload])
        session.set_history([user("first"), payload, user("last")])
        assert [repr(said) for said in session.history()][1:2] == [repr(payload)]
        before = count(session)
        assert session.set_history([user("first"), payload, user("last")]) is None
        assert count(session) == before


@pytest.mark.rule("W1", "E5")
@pytest.mark.parametrize("name", [name for name in PLAIN if not name.startswith("100")])
def test_what_is_kept_as_metadata_comes_back_as_it_was(world: World, name: str) -> None:
    value = PLAIN[name]
    with world.store().create("s", meta={"begun": value}) as session:
        session.append(user("Hello"))
        session.update(meta={"later": value})
        assert repr(session.head.meta) == repr({"begun": value, "later": value})
    assert repr(world.reopened().head("s").meta) == repr({"begun": value, "later": value})


@pytest.mark.rule("W1", "E6")
def test_a_large_number_may_stand_in_usage(world: World) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "nonce": 2**64 + 1, "far": [-(10**40)]}
    with world.store().create("s") as session:
        assert session.append(user("Hello"), usage=usage).usage == usage
        session.add_usage(usage)
        assert session.usage().total_tokens == 14
    records = list(world.reopened().read("s").records(after=0))
    assert records[0].usage == usage
    assert records[1].data == usage


@pytest.mark.rule("W1")
def test_every_payload_comes_back_as_it_was_in_another_process(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(PLAIN.values())
    assert world.elsewhere(_payloads, "s") == [repr(payload) for payload in PLAIN.values()]


@pytest.mark.rule("W1")
@pytest.mark.parametrize("name", ALIKE)
def test_what_is_equal_as_json_is_taken_as_json(world: World, name: str) -> None:
    payload, stored = ALIKE[name]
    with world.store().create("s", eager=True) as session:
        session.append(user("Hello"))
        session.clear()
        assert repr(session.append(payload).data) == repr(stored)
        session.extend([payload])
        session.checkpoint([*session.history(), payload])
        session.update(meta={"kept": payload if not name.startswith("100") else None})
        assert [repr(said) for said in session.history()] == [repr(stored)] * 3
    assert [repr(said) for said in world.reopened().read("s").history()] == [repr(stored)] * 3


@pytest.mark.rule("W1")
def test_what_may_be_left_out_of_a_model_is_left_out(world: World) -> None:
    with world.store().create() as session:
        assert session.append(Model(role="user", content="Hello")).data == user("Hello")


@pytest.mark.rule("W1", "E6")
def test_usage_may_be_a_model(world: World) -> None:
    with world.store().create() as session:
        record = session.append(assistant("Hello"), usage=Model(input_tokens=3, output_tokens=4))  # type: ignore[arg-type]
        session.add_usage(Model(input_tokens=1))  # type: ignore[arg-type]
        assert record.usage == {"input_tokens": 3, "output_tokens": 4}
        assert session.usage().total_tokens == 8


# -- W1: refused


@pytest.mark.rule("W1", "W4")
@pytest.mark.parametrize("name", REFUSED)
def test_a_payload_that_json_cannot_carry_is_refused_with_its_path(world: World, name: str) -> None:
    payload, path, reason = REFUSED[name]
    with world.store().create("s") as session:
        session.append(user("Hello"))
        with pytest.raises(InvalidPayload) as caught:
            session.append(payload)
        assert caught.value.path == path
        assert reason in caught.value.reason
        assert str(caught.value) == f"{path}: {caught.value.reason}"
        assert isinstance(caught.value, ValueError)
        str(caught.value).encode()  # it can be printed
        assert count(session) == 2


@pytest.mark.rule("W1", "W2", "W4")
@pytest.mark.parametrize("name", REFUSED)
def test_a_payload_that_json_cannot_carry_is_refused_by_every_call_and_nothing_is_stored(
    world: World, name: str
) -> None:
    payload = REFUSED[name][0]
    store = world.store()
    calls: list[Callable[[Session], Any]] = [
        lambda session: session.append(payload),
        lambda session: session.append(payload, kind="mine.own"),
        lambda session: session.extend([user("a"), payload, user("b")]),
        lambda session: session.append(user("a"), usage={"input_tokens": 1, "x": payload}),
        lambda session: session.extend([user("a")], usages=[{"input_tokens": 1, "x": payload}]),
        lambda session: session.add_usage({"input_tokens": 1, "x": payload}),
        lambda session: session.checkpoint([user("a"), payload]),
        lambda session: session.set_history([user("Hello"), payload]),
        lambda session: session.set_history([payload]),
        lambda session: session.update(model="x", meta={"kept": payload}),
        lambda session: store.append("s", payload),
        lambda session: store.extend("s", [user("a"), payload]),
        lambda session: store.append("new", payload, create=True),
        lambda session: store.create("new", meta={"kept": payload}, eager=True),
    ]
    with store.create("s") as session:
        session.append(user("Hello"))
        before = list(session.records())
        for attempt in calls:
            with pytest.raises(InvalidPayload):
                attempt(session)
        assert list(session.records()) == before
        assert session.history() == [user("Hello")]
        assert session.head.meta == {}
    with pytest.raises(SessionNotFound):
        store.head("new")


@pytest.mark.rule("W1", "W8")
def test_a_refused_payload_does_not_begin_a_session(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        for attempt in (
            lambda: session.append(b""),
            lambda: session.extend([user("a"), {1}]),
            lambda: session.checkpoint([float("nan")]),
            lambda: session.set_history([b""]),
            lambda: session.set_summary("\ud800"),
            lambda: session.rename("\ud800"),
            lambda: session.add_usage({"input_tokens": 1, "x": b""}),
        ):
            with pytest.raises(InvalidPayload):
                attempt()
        assert store.list(empty=True) == []
        session.append(user("Hello"))
        assert session.history() == [user("Hello")]


@pytest.mark.rule("W1", "W4")
@pytest.mark.parametrize("text", ["\ud800", "a\udc00", b"a", 7, ["a"]], ids=repr)
def test_text_that_is_no_text_is_refused_wherever_it_stands(world: World, text: Any) -> None:
    with world.store().create("s") as session:
        session.append(user("Hello"))
        before = session.head
        for attempt in (
            lambda: session.rename(text),
            lambda: session.set_summary(text),
            lambda: session.label(text),
            lambda: session.update(title=text),
            lambda: session.update(model=text),
            lambda: session.update(labels=[text]),
            lambda: session.checkpoint([], summary=text),
            lambda: session.append(user("a"), id=text),
            lambda: session.append(user("a"), model=text),
            lambda: session.append(user("a"), shape=text),
            lambda: session.append(user("a"), turn=text),
            lambda: session.extend([user("a")], ids=[text]),
        ):
            with pytest.raises(InvalidPayload):
                attempt()
        assert session.head == before


# -- W7


@pytest.mark.rule("W7")
def test_changing_a_payload_after_it_was_written_changes_nothing_that_is_stored(world: World) -> None:
    payload: Any = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    usage: Any = {"input_tokens": 1, "details": {"x": [1]}}
    meta: Any = {"tags": ["a"], "deep": {"x": 1}}
    told, used, kept = copy.deepcopy(payload), copy.deepcopy(usage), copy.deepcopy(meta)
    with world.store().create("s", meta=meta, labels=(labels := ["a"])) as session:
        meta["tags"].append("b")
        labels.append("b")
        session.append(payload, usage=usage)
        session.extend([payload], usages=[usage])
        session.add_usage(usage)
        session.checkpoint([given := copy.deepcopy(payload), payload])
        session.update(meta=(more := {"more": {"x": [1]}}))
        payload["content"][0]["text"] = "Changed"
        payload["new"] = 1
        given["content"].clear()
        usage["details"]["x"].append(2)
        more["more"]["x"].append(2)
        for view in (session, world.other().read("s")):
            assert view.history() == [told, told]
            assert [record.data for record in view.records(kinds="message")] == [told, told]
            assert [record.usage for record in view.records(kinds="message")] == [used, used]
            assert [record.data for record in view.records(kinds="usage")] == [used]
            assert view.head.meta == {**kept, "more": {"x": [1]}}
            assert view.head.labels == ["a"]


@pytest.mark.rule("W7")
def test_what_is_handed_in_is_not_changed(world: World) -> None:
    payload = {"role": "user", "content": ({"type": "text", "text": "Hello"},), "x": Model(y=(1,))}
    shape = repr(payload)
    payloads: list[Any] = [payload, user("a")]
    usage = {"input_tokens": 1, "details": (1,)}
    with world.store().create("s") as session:
        session.append(payload, usage=usage, id="a")
        session.append(payload, usage=usage, id="a")
        session.extend(payloads, ids=(ids := ["b", None]))
        session.checkpoint(payloads)
        session.set_history(payloads)
        session.set_history([])
        session.update(meta=(meta := {"x": (1,)}), unset=(unset := ["meta.y"]))
    assert repr(payload) == shape
    assert len(payloads) == 2
    assert payloads[0] is payload
    assert usage == {"input_tokens": 1, "details": (1,)}
    assert ids == ["b", None]
    assert meta == {"x": (1,)}
    assert unset == ["meta.y"]


@pytest.mark.rule("W7")
def test_what_is_returned_is_the_callers_own(world: World) -> None:
    payload = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    store = world.store()
    with store.create("s", meta={"deep": {"x": [1]}}, labels=["a"]) as session:
        record = session.append(payload, id="a", usage={"input_tokens": 1, "details": {"x": [1]}})
        session.checkpoint([payload, user("a")], summary="So far")
        view = store.read("s")
        told = (list(session.history()), list(session.records()), session.head, session.usage())
        told = copy.deepcopy(told)

        def spoil(value: Any) -> None:
            if isinstance(value, dict):
                for item in value.values():
                    spoil(item)
                value["spoiled"] = True
            elif isinstance(value, list):
                for item in value:
                    spoil(item)
                value.append("spoiled")

        spoil(record.data)
        spoil(record.usage)
        for place in (session, view):
            spoil(place.history())
            spoil(place.history(limit=1))
            spoil(place.history(repair=True))
            spoil([r.data for r in place.records()])
            spoil([r.usage for r in place.records()])
            found = place.get("a")
            assert found is not None
            spoil(found.data)
            spoil(place.head.meta)
            spoil(place.head.labels)
            place.usage().input_tokens = 999
            place.head.usage.models["x"] = place.usage()
        for head in (store.head("s"), *store.list()):
            spoil(head.meta)
            spoil(head.labels)
        repeated = session.append(payload, id="a")
        spoil(repeated.data)
        for place in (session, view, store.read("s"), world.other().read("s")):
            now = (list(place.history()), list(place.records()), place.head, place.usage())
            assert now == told


@pytest.mark.rule("W7", "H6")
def test_what_was_popped_is_the_callers_own(world: World) -> None:
    with world.store().create("s") as session:
        session.extend([user("a"), {"role": "user", "content": ["b"]}])
        popped = session.pop()
        popped[0]["content"].append("spoiled")
        popped.clear()
        assert [record.data["content"] for record in session.records(kinds="message")] == ["a", ["b"]]


@pytest.mark.rule("W7")
def test_two_readers_share_no_object(world: World) -> None:
    with world.store().create("s") as session:
        session.append({"role": "user", "content": [{"type": "text", "text": "Hello"}]})
        one, other = session.history(), session.history()
        assert one == other
        assert one[0] is not other[0]
        assert one[0]["content"] is not other[0]["content"]
        assert one[0]["content"][0] is not other[0]["content"][0]
