# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutation` on a small tree of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.daemon import ROOT

CODE = """\
def bounded(number):
    if number > 3:
        return 3
    return number
"""
TESTS = """\
from bounds.code_of_it import bounded
def test_bound():
    assert bounded(9) == 3
def test_small():
    assert bounded(2) == 2
"""
CONFTEST = "from tests.rings.plugin import pytest_addoption, pytest_configure\n"


def _entry(name: str, remove: str, replace: str, test: str) -> str:
    return (
        f"[[cure]]\nname = '{name}'\nfile = 'bounds/code_of_it.py'\n"
        f"remove = '''\n{remove}'''\nreplace = '''\n{replace}'''\ntests = ['test_it.py::{test}']\n"
    )


BOUND = "    if number > 3:\n        return 3\n"
KILLED = _entry("killed", BOUND, "", "test_bound")
SURVIVES = _entry("survives", BOUND, "", "test_small")
BROKEN = _entry("broken", BOUND, "    if number > 3:\n", "test_bound")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "it"
    (made / "bounds").mkdir(parents=True)
    shutil.copytree(ROOT / "tests" / "rings", made / "tests" / "rings")
    for name, text in {"bounds/code_of_it.py": CODE, "test_it.py": TESTS, "conftest.py": CONFTEST}.items():
        (made / name).write_text(text)
    (made / "pytest.ini").write_text("[pytest]\n")
    return made


def _run(tree: Path, text: str) -> tuple[int, str]:
    lists = tree.parent / "cures"
    lists.mkdir()
    (lists / "bounds.toml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--lists", str(lists), "--tree", str(tree)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_mutant_has_its_verdict(tree: Path) -> None:
    code, output = _run(tree, KILLED + SURVIVES + BROKEN)
    verdicts = [
        line.split()[0] for line in output.splitlines() if line.startswith(("killed", "SURV", "BROK"))
    ]
    assert (code, verdicts) == (1, ["killed", "SURVIVED", "BROKEN"])
    assert "not noticed by test_it.py::test_small" in output
    assert output.splitlines()[-1] == "1 passed, 2 failed"
    assert (tree / "bounds" / "code_of_it.py").read_text() == CODE


def test_a_skipped_test_kills_nothing(tree: Path) -> None:
    """What runs nowhere would count as a check for ever."""
    skip = "import pytest\n@pytest.mark.skip(reason='nothing is built')\ndef test_bound"
    (tree / "test_it.py").write_text(TESTS.replace("def test_bound", skip))
    code, output = _run(tree, KILLED)
    assert code == 1
    assert output.startswith("LEFT OUT killed (")
    assert output.splitlines()[1:] == [
        "         did not run: test_it.py::test_bound: nothing is built",
        "0 passed, 1 failed",
    ]


def test_all_killed_is_well(tree: Path) -> None:
    assert _run(tree, KILLED)[0] == 0


def test_lines_that_are_not_there_fail_before_anything_runs(tree: Path) -> None:
    code, output = _run(tree, KILLED + _entry("gone", "    if number > 4:\n", "", "test_bound"))
    assert (code, output) == (2, "gone: its lines stand 0 times in bounds/code_of_it.py, not once\n")


def test_tests_that_fail_with_the_cure_show_nothing(tree: Path) -> None:
    (tree / "test_it.py").write_text(TESTS.replace("== 3", "== 4"))
    code, output = _run(tree, KILLED)
    assert code == 1
    assert "the tests do not pass with all cures in place: ['test_it.py::test_bound']" in output
