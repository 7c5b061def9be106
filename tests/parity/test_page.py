"""docs/parity.md has every identifier of the five systems, and a test for every row but those for later."""

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

COMPLETE = ("ggcode", "picoclaw")
"""The systems of which nothing is for later."""


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


@pytest.mark.parametrize("system", COMPLETE)
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
