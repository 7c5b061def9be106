"""docs/parity.md has every identifier of the five systems, and a test for every row but those for later."""

# ruff: noqa: E501  # sentences are quoted whole

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import hansard

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "parity.md"

SYSTEMS = {
    "operator": """
        Store NewStore Store.Get Store.Set Store.Delete Store.Load Store.Save Store.All dir mu data
        settings.json credentials.json providers.json sessions.json mcp-servers.json spaces.json hooks.json
        skills.json context.json
        Session Session.ID Session.AgentID Session.Turns Session.StartedAt Session.EndedAt Session.Status
        Session.Usage Usage Usage.InputTokens Usage.OutputTokens Usage.TotalTokens
        runner.Dispatch runner.DispatchStream
        Manager Manager.Create Manager.Get Manager.List Manager.Save Manager.Load Manager.Delete
        ChatSession ChatSession.ID ChatSession.Turns ChatSession.AgentID ChatSession.CreatedAt
        ChatSession.UpdatedAt ChatTurn ChatTurn.ID ChatTurn.Request ChatTurn.Response ChatTurn.Status
        ChatTurn.Timestamp RequestBlock RequestBlock.Type RequestBlock.Content RequestBlock.Meta
        ResponseBlock ResponseBlock.Type ResponseBlock.Content ResponseBlock.Meta
        index.json id agent_id title created_at updated_at turn_count global assistant project
    """,
    "acolyte": """
        sess_* SessionStore SessionStore.saveSession listSessions getSession saveSession removeSession
        sessions.json cloudSync
    """,
    "ggcode": """
        CurrentWorkspacePath DefaultDir ExportSessionMarkdown NormalizeWorkspacePath
        JSONLStore NewDefaultStore NewJSONLStore JSONLStore.AppendCheckpoint
        JSONLStore.AppendCheckpointToDisk JSONLStore.AppendMessage JSONLStore.AppendMessageToDisk
        JSONLStore.AppendTunnelEventToDisk JSONLStore.CleanupOlderThan JSONLStore.Delete JSONLStore.Dir
        JSONLStore.EnsureMeta JSONLStore.ExportMarkdown JSONLStore.List JSONLStore.Load JSONLStore.Save
        Session Session.ID Session.CreatedAt Session.UpdatedAt Session.Title Session.Workspace Session.Vendor
        Session.Endpoint Session.Model Session.Messages Session.TunnelEvents Session.TunnelEventsComplete
        Session.CostJSON NewSession Session.HasUserInteraction
        Store Store.Save Store.Load Store.List Store.Delete Store.ExportMarkdown Store.CleanupOlderThan
        Store.AppendCheckpoint
        TunnelEvent TunnelEvent.EventID TunnelEvent.StreamID TunnelEvent.Type TunnelEvent.Data
    """,
    "agentmux": """
        definition_id agent:<defId>:current agent:<defId>:archive:<unix_ms> output.state.json output
        ArchiveSummary MigrationStats TemplatePromoteStats CopyAction
        MIGRATION_MARKER_V1 OUTPUT_FILE SNAPSHOT_FILE TEMPLATE_PROMOTE_MARKER_V1
        agent_archive_zone agent_current_zone append_session_output archive_session collapse_preview
        ensure_file is_valid_definition_id list_archives migrate_block_zones_v1
        migrate_promote_template_sessions_v1 move_zone now_ms read_archive_preview read_session_state
        validate_and_current write_session_state write_zone_file
    """,
    "picoclaw": """
        JSONLBackend NewJSONLBackend JSONLBackend.AddFullMessage JSONLBackend.AddMessage JSONLBackend.Close
        JSONLBackend.GetHistory JSONLBackend.GetSummary JSONLBackend.Save JSONLBackend.SetHistory
        JSONLBackend.SetSummary JSONLBackend.TruncateHistory
        Session Session.Key Session.Messages Session.Summary Session.Created Session.Updated
        SessionManager NewSessionManager SessionManager.AddFullMessage SessionManager.AddMessage
        SessionManager.Close SessionManager.GetHistory SessionManager.GetOrCreate SessionManager.GetSummary
        SessionManager.Save SessionManager.SetHistory SessionManager.SetSummary
        SessionManager.TruncateHistory
        SessionStore SessionStore.AddMessage SessionStore.AddFullMessage SessionStore.GetHistory
        SessionStore.GetSummary SessionStore.SetSummary SessionStore.SetHistory SessionStore.TruncateHistory
        SessionStore.Save SessionStore.Close
    """,
}
"""What the documentation of each system exports: types, functions, methods, fields, constants, files."""

SENTENCES = {
    "ggcode": """
        returns the default session directory
        renders a Session to markdown
        implements Store using JSONL files
        creates a store in the default directory
        creates a store rooted at dir (creates dir if needed)
        appends a checkpoint record to the session JSONL file
        captures the compacted messages state after a summarize operation, so that future --resume operations can skip re-compacting old history
        persists a checkpoint (compaction snapshot) to the session's JSONL file and updates the Session object in place
        The caller must ensure no concurrent access to the Session object
        persists a checkpoint to the session's JSONL file and updates the index, but does NOT modify the Session object
        Use this when the caller manages Session mutations under its own lock and only needs the disk write to happen outside that lock
        atomically appends a single message to the session's JSONL file
        This is more efficient than Save() for incremental updates
        persists a message to the session's JSONL file and updates the Session object in place (Messages, UpdatedAt, Title)
        persists a message to the session's JSONL file and updates the index, but does NOT modify the Session object
        Use this when the caller manages Session mutations under its own lock (e.g. sessionMutex in the TUI), and only needs the disk write to happen outside that lock
        persists a canonical tunnel event to the session's JSONL file and updates the index, but does NOT mutate the Session object
        removes sessions older than the given time. Returns count removed
        removes a session file and its index entry
        returns the store's directory path
        writes the meta record if the session file doesn't exist yet
        If the session has no user interaction, no file is created
        renders a session as a markdown document
        returns all sessions sorted by UpdatedAt descending (uses index for speed)
        reads a session from its JSONL file
        writes the full session as a JSONL file (atomic)
        If the session has no user interaction, the file is deleted instead
        Cost data stored as opaque JSON to avoid circular dependency with cost package
        represents a single conversation session
        creates a new Session with a generated ID
        returns true if the session contains at least one user message with actual text content
        Sessions without user interaction (e.g., created then immediately closed) should not be persisted to avoid accumulating empty session files
        persists the current state of a session (atomic write)
        retrieves a session by ID
        returns all sessions, sorted by UpdatedAt descending
        removes a session by ID
        removes sessions whose UpdatedAt is before the given time
        persists a checkpoint of compacted messages after summarize
        The checkpoint allows --resume to skip re-compacting old history
        is the interface for session persistence
        is the canonical persisted tunnel event for a session
    """,
    "picoclaw": """
        adapts a memory.Store into the SessionStore interface
        Write errors are logged rather than returned, matching the fire-and-forget contract of SessionManager that the agent loop relies on
        wraps a memory.Store for use as a SessionStore
        releases resources held by the underlying store
        persists session state
        Since the JSONL store fsyncs every write immediately, the data is already durable
        runs compaction to reclaim space from logically truncated messages (no-op when there are none)
        adds a complete message with tool calls and tool call ID to the session
        This is used to save the full conversation flow including tool calls and tool results
        is a no-op for the in-memory SessionManager; it satisfies the SessionStore interface so callers can release resources uniformly
        updates the messages of a session
        appends a simple role/content message to the session
        appends a complete message including tool calls
        returns the full message history for the session
        returns the conversation summary, or "" if none
        replaces the conversation summary
        replaces the full message history
        keeps only the last keepLast messages
        persists any pending state to durable storage
        releases resources held by the store
        defines the persistence operations used by the agent loop
        Both SessionManager (legacy JSON backend) and JSONLBackend satisfy this interface, allowing the storage layer to be swapped without touching the agent loop code
        Write methods (Add*, Set*, Truncate*) are fire-and-forget: they do not return errors
        Implementations should log failures internally
        This matches the original SessionManager contract that the agent loop relies on
    """,
}
"""Every sentence of the documentation of the systems of which nothing is for later, without its subject."""

IN_ONE_PROCESS = {"test_custom_backends_fulfil_a_protocol"}
"""Tests of what no other process can see."""


class Row(NamedTuple):
    theirs: str
    words: str
    ours: str
    tests: list[str]


def sections() -> Iterator[tuple[str, str]]:
    """The system of each section, by its file of tests, and the text."""
    for text in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        file = re.search(r"\]\(\.\./tests/parity/test_(\w+)\.py\)", text)
        assert file is not None, f"no file of tests is named below {text.splitlines()[0]!r}"
        yield file[1], text


def rows(system: str) -> list[Row]:
    text = dict(sections())[system]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert all(len(row) == 4 for row in cells)
    return [Row(*row[:3], tests=code(row[3])) for row in cells]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def proofs(system: str) -> list[str]:
    tree = ast.parse((HERE / f"test_{system}.py").read_text(encoding="utf-8"))
    named = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in named if name.startswith("test_")]


def test_the_page_has_every_system_and_every_system_its_tests() -> None:
    files = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")} - {"page"}
    assert {system for system, _ in sections()} == set(SYSTEMS) == files


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_row_names_tests_that_are_there(system: str) -> None:
    known = proofs(system)
    for row in rows(system):
        assert row.tests or row.ours.startswith("later"), f"nothing proves {row.theirs}"
        assert not set(row.tests) - set(known), f"{row.theirs}: no such test"
        assert row.words.startswith('"'), f"{row.theirs}: what does it promise, in its own words?"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_test_stands_in_a_row(system: str) -> None:
    assert {name for row in rows(system) for name in row.tests} == set(proofs(system))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_identifier_stands_in_a_row(system: str) -> None:
    named = {name for row in rows(system) for name in code(row.theirs)}
    assert not set(SYSTEMS[system].split()) - named


@pytest.mark.parametrize("system", SENTENCES)
def test_every_sentence_stands_in_a_row(system: str) -> None:
    sentences = [line.strip() for line in SENTENCES[system].strip().splitlines()]
    quoted = "\n".join(row.words for row in rows(system))
    assert [sentence for sentence in sentences if sentence not in quoted] == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_test_asks_a_process_that_has_just_begun(system: str) -> None:
    tree = ast.parse((HERE / f"test_{system}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in set(proofs(system)) - IN_ONE_PROCESS:
            asked = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            assert any(isinstance(call.func, ast.Name) and call.func.id == "elsewhere" for call in asked), (
                f"{node.name} looks at nothing that another process sees"
            )


@pytest.mark.parametrize("system", SENTENCES)
def test_nothing_of_the_complete_ones_is_for_later(system: str) -> None:
    assert not [row.theirs for row in rows(system) if "later" in row.ours]


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_stands_for_it_is_there_and_is_run(system: str) -> None:
    run = (HERE / f"test_{system}.py").read_text(encoding="utf-8")
    with hansard.open("memory:") as store, store.create("s", eager=True) as session:
        known = {"store": store, "session": session, "head": session.head, "view": store.read("s")}
        known |= {"hansard": hansard, "sessions": store.best_effort(), "state": store.state("settings")}
        for row in rows(system):
            later = row.ours.startswith("later")
            assert code(row.ours) or later, row
            for expression in code(row.ours):
                for node in ast.walk(ast.parse(expression, mode="eval")):
                    if isinstance(node, ast.Attribute):
                        assert later or re.search(rf"\b{node.attr}\b", run), expression
                        if isinstance(node.value, ast.Name) and node.value.id in known:
                            assert hasattr(known[node.value.id], node.attr), expression


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_differs_is_said_with_the_reason(system: str) -> None:
    _, _, differs = dict(sections())[system].partition("\nWhat differs, and why:\n")
    assert len(re.findall(r"^- \*\*", differs, flags=re.MULTILINE)) >= 4
