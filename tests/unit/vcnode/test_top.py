# SPDX-License-Identifier: Apache-2.0
"""`vcnode top` without a daemon."""

import argparse
import datetime as dt
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.status.server import ListenAddress
from vcnode import daemons, top
from vcnode.output import output_of
from vcnode.terminal import Terminal

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)
STATUS = {"daemon": "vn-agent", "pid": 0}
METRICS = """\
# HELP vcnode_vnagent_requests_total Decisions.
# TYPE vcnode_vnagent_requests_total counter
vcnode_vnagent_requests_total{{tenant="a",endpoint="logs",code="200"}} {count}
"""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """vn-agent with 8 more requests at each reading, 2 s apart; the list has what was waited."""
    waited: list[float] = []
    readings = iter(range(100))

    def fetch(_: ListenAddress, path: str, _timeout_s: float) -> tuple[int, bytes]:
        if path == "/metrics":
            return 200, METRICS.format(count=8 * next(readings)).encode()
        return 200, b"ok\n" if path == "/readyz" else json.dumps(STATUS).encode()

    monkeypatch.setattr(daemons, "fetch", fetch)
    monkeypatch.setattr(top, "fetch", fetch)
    monkeypatch.setattr("vcnode.top.time.sleep", waited.append)
    monkeypatch.setattr("vcnode.top.time.monotonic", lambda: sum(waited))
    monkeypatch.setattr("vcnode.top.time.time", NOW.timestamp)
    yield waited
    assert waited


def run(*argv: str, can_redraw: bool = False) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    top.add_to(parser.add_subparsers())
    out = io.StringIO()
    arguments = parser.parse_args(["top", "--socket", "/a.sock", *argv])
    terminal = Terminal(out, io.StringIO(), NOW, output_of(arguments), 80, can_redraw=can_redraw)
    code: int = arguments.run(arguments, terminal)
    return code, out.getvalue()


def test_a_pipe_gets_one_result(node: list[float]) -> None:
    code, text = run()
    assert (code, node) == (0, [2.0])
    assert text.splitlines()[-1].split() == ["a", "4.0", "0.0", "0", "B", "-", "-", "-"]


def test_a_terminal_is_redrawn_until_the_count(node: list[float]) -> None:
    code, text = run("--count", "3", "--interval", "0.5", can_redraw=True)
    assert (code, node) == (0, [0.5, 0.5, 0.5])
    assert text.count("\x1b[H\x1b[J") == 3
    assert text.count("16.0") == 3


def test_an_interrupt_ends_it_with_the_last_verdict(
    node: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        if len(node) == 2:
            raise KeyboardInterrupt
        node.append(seconds)

    monkeypatch.setattr("vcnode.top.time.sleep", sleep)
    assert run(can_redraw=True)[0] == 0


def test_documents_are_one_by_default(node: list[float]) -> None:
    code, text = run("-o", "json", can_redraw=True)
    found = json.loads(text)
    assert (code, found["kind"], found["seconds"]) == (0, "NodeUse", 2.0)
    assert found["tenants"][0]["requestsPerSecond"] == 4.0


@pytest.mark.parametrize(
    "argv", [["--interval", "0"], ["--interval", "x"], ["--count", "0"], ["--count", "-1"]]
)
def test_other_numbers_are_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*argv)
    assert caught.value.code == 2
    assert "number" in capsys.readouterr().err


def test_a_daemon_without_an_answer_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(_: ListenAddress, _path: str, _timeout_s: float) -> tuple[int, bytes]:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(daemons, "fetch", fetch)
    monkeypatch.setattr("vcnode.top.time.sleep", lambda _: None)
    monkeypatch.setattr("vcnode.top.time.monotonic", lambda: 1.0)
    monkeypatch.setattr("vcnode.top.time.time", NOW.timestamp)
    code, text = run()
    assert code == 3
    assert str(Path("/a.sock")) in text
