"""Errors cross from one process to another: what they say and carry comes along."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

import hansard
from hansard import errors
from hansard.engines import Holder

PLAIN = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, hansard.HansardError) and "__init__" not in vars(kind)
]

ERRORS = [
    hansard.InvalidId("a\x00b", "it has a control character"),
    hansard.InvalidPayload("$.content", "nan has no place in JSON"),
    hansard.SessionNotFound("gone"),
    hansard.SessionNotFound("gone", "session 'gone' was deleted; another one has its id now"),
    hansard.AmbiguousSession("a", 12, [("ab", "Fix CI"), ("ac", "")]),
    hansard.AlreadyExists("one"),
    hansard.SessionBusy("one"),
    hansard.SessionBusy("one", Holder(session="one", pid=7, host="here"), "try later"),
    hansard.Conflict("it has moved on", seq=7),
    hansard.NotAStore("no store", path="/srv", missing=True),
    *(kind("what happened") for kind in PLAIN),
]


def same(error, other):
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.args == error.args
    assert vars(other) == vars(error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_pickle_as_it_was(error):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        same(error, pickle.loads(pickle.dumps(error, protocol)))  # noqa: S301


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copy_of_an_error_is_as_it_was(error):
    same(error, copy.copy(error))
    same(error, copy.deepcopy(error))


def test_what_is_known_of_the_write_and_notes_come_along():
    error = hansard.StoreUnavailable("the disk is gone")
    error.outcome_unknown = True
    error.closes = True
    error.add_note("while appending")
    other = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (other.outcome_unknown, other.closes, other.__notes__) == (True, True, ["while appending"])


def test_every_error_is_tried():
    assert {type(error) for error in ERRORS} == {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, hansard.HansardError)
    }


def test_the_record_of_a_conflict_comes_along():
    with hansard.open("memory:") as store, store.create("one") as session:
        session.append({"n": 1}, id="key")
        with pytest.raises(hansard.Conflict) as caught:
            session.append({"n": 2}, id="key")
    other = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert other.first.data == caught.value.first.data == {"n": 1}


def _refused():
    hansard.open("memory:").create("\x00")


def test_an_error_comes_back_from_a_pool_of_processes():
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(hansard.InvalidId, match="control character"):
            pool.submit(_refused).result(30)
