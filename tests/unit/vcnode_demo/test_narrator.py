# SPDX-License-Identifier: Apache-2.0
import ast
import datetime as dt
import io
import re
from pathlib import Path

import pytest

from vcnode.terminal import Terminal
from vcnode_demo import scenarios
from vcnode_demo.narrator import NotAsToldError, Story, shortened


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def story(out: io.StringIO) -> Story:
    return Story(Terminal(out, io.StringIO(), dt.datetime(2027, 1, 1, tzinfo=dt.UTC)))


def test_a_story_as_it_is_printed(story: Story, out: io.StringIO) -> None:
    story.act("Act 1")
    story.step("acme reads a log")
    story.asked("acme", "GET /x")
    story.came("HTTP/1.1 200 OK\n\nline\x1b")
    story.check(True, "it is acme's")
    story.step("the next")
    story.say("(a word)")
    assert out.getvalue() == (
        "\nAct 1\n-----\n\n1. acme reads a log\n   acme > GET /x\n      HTTP/1.1 200 OK\n\n      line\ufffd\n"
        "   ok: it is acme's\n\n2. the next\n   (a word)\n"
    )
    assert (story.steps, story.checks) == (2, 1)


def test_a_claim_that_does_not_hold_ends_the_story(story: Story, out: io.StringIO) -> None:
    with pytest.raises(NotAsToldError, match="it is acme's"):
        story.check(False, "it is acme's")
    assert (story.checks, out.getvalue()) == (0, "")


def test_what_is_long_is_shortened() -> None:
    assert shortened("x" * 150) == "x" * 150
    assert shortened("x" * 151) == "x" * 146 + " ..."


def test_an_act_that_is_left_out_is_one_line(story: Story, out: io.StringIO) -> None:
    story.left_out("Act 3: guests", "needs root")
    assert out.getvalue() == "\nAct 3: guests: left out, it needs root\n"
    assert (story.steps, story.checks) == (0, 0)


_SCENARIOS = sorted(Path(scenarios.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("scenario", _SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_shows_no_program_it_does_not_run(scenario: Path) -> None:
    """What is asked is asked in Python: a line `curl ...` would be one that nobody has typed."""
    shown = [
        piece.value
        for call in ast.walk(ast.parse(scenario.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in ("asked", "say", "came", "step")
        for piece in ast.walk(call)
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
    ]
    assert shown
    assert not [text for text in shown if re.match(r"\W*(curl|getent|kubectl|dig|nslookup)\b", text)]
