"""Hansard keeps the sessions of AI agents: every message, through crashes, concurrent processes and years.

>>> import hansard
>>> store = hansard.open("memory:")
>>> with store.create(agent="coder") as session:
...     _ = session.append({"role": "user", "content": "Build a login page"})
...     session.history()
[{'role': 'user', 'content': 'Build a login page'}]
>>> store.close()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hansard._version import __version__
from hansard.errors import (
    AlreadyExists,
    AmbiguousSession,
    Closed,
    Conflict,
    Damaged,
    Forbidden,
    HansardError,
    InvalidId,
    InvalidPayload,
    LeaseLost,
    NewerFormat,
    NoSessions,
    NotAStore,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
    StoreFull,
    StoreUnavailable,
    TurnInProgress,
    Unauthorized,
    Unsupported,
    WrongKey,
)

if TYPE_CHECKING:
    from hansard import formats
    from hansard.best_effort import Dropped
    from hansard.documents import Document
    from hansard.engines import Blob, Finding, Holder
    from hansard.engines.files import HansardWarning
    from hansard.following import Cursor, Follower
    from hansard.records import Damage, Record
    from hansard.retention import Cleanup
    from hansard.session import Session, UsageLine, View
    from hansard.store import Hits, Page, Report, Store, Vacuumed, default_path, open, workspace
    from hansard.views.head import Head
    from hansard.views.history import History
    from hansard.views.search import Hit
    from hansard.views.turns import TurnItem, TurnView
    from hansard.views.usage import Usage

_LAZY = {
    "Blob": "hansard.engines",
    "Cleanup": "hansard.retention",
    "Document": "hansard.documents",
    "Dropped": "hansard.best_effort",
    "Finding": "hansard.engines",
    "Holder": "hansard.engines",
    "HansardWarning": "hansard.engines.files",
    "Cursor": "hansard.following",
    "Follower": "hansard.following",
    "Damage": "hansard.records",
    "Record": "hansard.records",
    "Session": "hansard.session",
    "UsageLine": "hansard.session",
    "View": "hansard.session",
    "Hits": "hansard.store",
    "Page": "hansard.store",
    "Report": "hansard.store",
    "Store": "hansard.store",
    "Vacuumed": "hansard.store",
    "default_path": "hansard.store",
    "open": "hansard.store",
    "workspace": "hansard.store",
    "Head": "hansard.views.head",
    "History": "hansard.views.history",
    "Hit": "hansard.views.search",
    "TurnItem": "hansard.views.turns",
    "TurnView": "hansard.views.turns",
    "Usage": "hansard.views.usage",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for when it is asked for, so that `import hansard` costs next to nothing."""
    if name == "formats":
        return import_module("hansard.formats")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'hansard' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "formats"})


__all__ = [
    "AlreadyExists",
    "AmbiguousSession",
    "Blob",
    "Cleanup",
    "Closed",
    "Conflict",
    "Cursor",
    "Damage",
    "Damaged",
    "Document",
    "Dropped",
    "Finding",
    "Follower",
    "Forbidden",
    "HansardError",
    "HansardWarning",
    "Head",
    "History",
    "Hit",
    "Hits",
    "Holder",
    "InvalidId",
    "InvalidPayload",
    "LeaseLost",
    "NewerFormat",
    "NoSessions",
    "NotAStore",
    "Page",
    "ReadOnlyStore",
    "Record",
    "Report",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "TurnInProgress",
    "TurnItem",
    "TurnView",
    "Unauthorized",
    "Unsupported",
    "Usage",
    "UsageLine",
    "Vacuumed",
    "View",
    "WrongKey",
    "__version__",
    "default_path",
    "formats",
    "open",
    "workspace",
]
