"""What all tests share: the switch for the slow ones, and which rules of the contract a failure breaks."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# The engine suite is part of the package; its assertions should explain themselves as those here do.
pytest.register_assert_rewrite("hansard.testing")

# A sync may take long on a busy disk: no deadline for a single example.
settings.register_profile("quick", deadline=None)
settings.register_profile("full", deadline=None, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked `full` too, and more examples")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # who runs in the background may be deaf to Ctrl-C, and so is whoever it starts
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("full" if config.getoption("--full") else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        rules = [rule for marker in item.iter_markers("rule") for rule in marker.args]
        item.user_properties += [("rule", rule) for rule in dict.fromkeys(rules)]
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --full"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("failed", "error") for report in terminalreporter.getreports(outcome)]
    broken = {
        rule for report in reports for key, rule in getattr(report, "user_properties", ()) if key == "rule"
    }
    if broken:
        terminalreporter.section("rules of the contract that do not hold")
        terminalreporter.line(" ".join(sorted(broken)))
