# SPDX-License-Identifier: Apache-2.0
"""`vcnode log-level` without a daemon; tests/functional runs it with one."""

import argparse
import datetime as dt
import io
import json
from pathlib import Path

import pytest

from daemonkit.status.server import ListenAddress
from vcnode import daemons, log_level
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)


class RecordedDaemon:
    """Answers each request with `reply`."""

    def __init__(self) -> None:
        self.reply = 200, b'{"level":"debug","configured":"info"}'
        self.requests: list[tuple[ListenAddress, str, str]] = []

    def fetch(self, where: ListenAddress, path: str, _timeout_s: float, method: str) -> tuple[int, bytes]:
        self.requests.append((where, method, path))
        return self.reply


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> RecordedDaemon:
    recorded = RecordedDaemon()
    monkeypatch.setattr(daemons, "fetch", recorded.fetch)
    return recorded


def run(*argv: str) -> str:
    top = argparse.ArgumentParser()
    log_level.add_to(top.add_subparsers())
    out = io.StringIO()
    arguments = top.parse_args(["log-level", *argv])
    assert arguments.run(arguments, Terminal(out, io.StringIO(), NOW, output_of(arguments))) == 0
    return out.getvalue()


def test_a_level_is_put_to_the_socket_of_the_daemon(daemon: RecordedDaemon) -> None:
    assert run("kata-bridge", "debug") == ("kata-bridge: debug until SIGHUP or a restart; configured: info\n")
    where = Path("/run/vcnode/kata-bridge-status.sock")
    assert daemon.requests == [(where, "PUT", "/log-level?level=debug")]


def test_without_a_level_it_is_shown(daemon: RecordedDaemon) -> None:
    daemon.reply = 200, b'{"level":"info","configured":"info"}'
    assert run("vn-agent", "--socket", "/x.sock") == "vn-agent: info\n"
    assert run("vn-agent", "--address", "127.0.0.1:9") == "vn-agent: info\n"
    assert daemon.requests == [
        (Path("/x.sock"), "GET", "/log-level"),
        (("127.0.0.1", 9), "GET", "/log-level"),
    ]


def test_the_level_is_a_document(daemon: RecordedDaemon) -> None:
    assert json.loads(run("dnsconfig", "-o", "json")) == {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "LogLevel",
        "daemon": "dnsconfig",
        "level": "debug",
        "configured": "info",
    }


def test_a_refusal_has_the_text_of_the_daemon(daemon: RecordedDaemon) -> None:
    daemon.reply = 403, b"denied: for root\n"
    with pytest.raises(ToolError, match=r"^vc-syncer: denied: for root$"):
        run("vc-syncer", "error")


@pytest.mark.parametrize("argv", [("kubelet", "debug"), ("vn-agent", "loud"), ()])
def test_unknown_daemons_and_levels_are_wrong_usage(argv: tuple[str, ...], daemon: RecordedDaemon) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(*argv)
    assert daemon.requests == []
