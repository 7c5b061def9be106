"""docs/commands.md and docs/schemas/ are what the help texts and the outputs of the commands say today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.cli import COMMANDS

ROOT = Path(__file__).parent.parent.parent


def test_the_pages_are_not_stale():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "commands.py"), "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_an_example(command):
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## hansard {command}\n")[2].partition("\n## ")[0]
    assert re.search(rf"```sh\n(?:.*\n)*?.*hansard {command}\b", section)
    assert f"(schemas/{command}.json)" in section
