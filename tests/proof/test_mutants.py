"""The deliberate defects fit the source as it is, and the tests that are to notice them are there. That they
do is shown by `make mutants`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter

import pytest

from tests.proof.defects import DEFECTS, Defect
from tests.proof.mutants import ROOT, broken


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_changes_one_place_of_the_source_and_leaves_it_python(defect: Defect) -> None:
    assert defect.old != defect.new
    ast.parse(broken(defect))
    assert defect.tests


def test_each_defect_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(defect.name for defect in DEFECTS).items() if times > 1] == []


def test_every_test_that_is_to_notice_a_defect_is_there() -> None:
    tests = sorted({test for defect in DEFECTS for test in defect.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
