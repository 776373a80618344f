# SPDX-License-Identifier: Apache-2.0
import ast
import datetime as dt
import io
import re
from pathlib import Path

import pytest

from vcnode.terminal import Terminal
from vcnode_demo import scenarios
from vcnode_demo.narrator import CheckFailedError, Narrator, shortened


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def narrator(out: io.StringIO) -> Narrator:
    return Narrator(Terminal(out, io.StringIO(), dt.datetime(2027, 1, 1, tzinfo=dt.UTC)))


def test_steps_requests_responses_and_checks_are_printed(narrator: Narrator, out: io.StringIO) -> None:
    narrator.begin_scenario("Scenario 1")
    narrator.step("acme reads a log")
    narrator.request("acme", "GET /x")
    narrator.response("HTTP/1.1 200 OK\n\nline\x1b")
    narrator.check(True, "it is acme's")
    narrator.step("the next")
    narrator.note("(a word)")
    assert out.getvalue() == (
        "\nScenario 1\n----------\n"
        "\n1. acme reads a log\n   acme > GET /x\n      HTTP/1.1 200 OK\n\n      line\ufffd\n"
        "   ok: it is acme's\n\n2. the next\n   (a word)\n"
    )
    assert (narrator.steps, narrator.checks) == (2, 1)


def test_a_false_claim_raises(narrator: Narrator, out: io.StringIO) -> None:
    with pytest.raises(CheckFailedError, match="it is acme's"):
        narrator.check(False, "it is acme's")
    assert (narrator.checks, out.getvalue()) == (0, "")


def test_long_text_is_shortened() -> None:
    assert shortened("x" * 150) == "x" * 150
    assert shortened("x" * 151) == "x" * 146 + " ..."


def test_a_skipped_scenario_is_one_line(narrator: Narrator, out: io.StringIO) -> None:
    narrator.skipped("Scenario 3: guests", "needs root")
    assert out.getvalue() == "\nScenario 3: guests: skipped, it needs root\n"
    assert (narrator.steps, narrator.checks) == (0, 0)


_SCENARIOS = sorted(Path(scenarios.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("scenario", _SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_shows_no_program_it_does_not_run(scenario: Path) -> None:
    """Python sends the requests: a printed line `curl ...` would be a command that never ran."""
    shown = [
        piece.value
        for call in ast.walk(ast.parse(scenario.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in ("request", "response", "note", "step")
        for piece in ast.walk(call)
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
    ]
    # A scenario with a `kubectl` of its environment runs what it shows of that.
    runs_kubectl = "environment.kubectl(" in scenario.read_text()
    others = "curl|getent|dig|nslookup" if runs_kubectl else "curl|getent|kubectl|dig|nslookup"
    assert shown
    assert not [text for text in shown if re.match(rf"\W*({others})\b", text)]
