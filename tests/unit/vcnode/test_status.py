# SPDX-License-Identifier: Apache-2.0
"""`vcnode status` without daemons; tests/functional runs it with one."""

import argparse
import datetime as dt
import io
import json
from pathlib import Path

import pytest

from daemonkit.status.server import ListenAddress, StatusError
from vcnode import daemons, status
from vcnode.output import output_of
from vcnode.terminal import Terminal, ToolError

NOW = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)


def run(*argv: str) -> tuple[int, str]:
    top = argparse.ArgumentParser()
    status.add_to(top.add_subparsers())
    out = io.StringIO()
    arguments = top.parse_args(["status", *argv])
    code: int = arguments.run(arguments, Terminal(out, io.StringIO(), NOW, output_of(arguments)))
    return code, out.getvalue()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[ListenAddress, int | Exception]:
    """By address: the status code of /readyz, or what fetching raises."""
    known: dict[ListenAddress, int | Exception] = {}

    def fetch(address: ListenAddress, path: str, _timeout_s: float) -> tuple[int, bytes]:
        response = known.get(address, FileNotFoundError(2, "No such file or directory"))
        if isinstance(response, Exception):
            raise response
        return (
            (response, b"tenants: ok\n")
            if path == "/readyz"
            else (200, b'{"daemon": "vn-agent", "newKey": [1]}')
        )

    monkeypatch.setattr(daemons, "fetch", fetch)
    return known


def test_ready_daemons_exit_0(answers: dict[ListenAddress, int | Exception]) -> None:
    answers |= {Path("/a.sock"): 200, ("127.0.0.1", 99): 200}
    assert run("--socket", "/a.sock", "--address", "127.0.0.1:99") == (
        0,
        "vn-agent: ready  (/a.sock)\n\nvn-agent: ready  (127.0.0.1:99)\n",
    )


def test_unready_daemons_exit_1(answers: dict[ListenAddress, int | Exception]) -> None:
    answers |= {Path("/a"): 200, Path("/b"): 503}
    assert run("--socket", "/a", "/b")[0] == 1


def test_daemons_without_an_answer_exit_3(answers: dict[ListenAddress, int | Exception]) -> None:
    answers |= {
        Path("/a"): 503,
        Path("/b"): TimeoutError(),
        Path("/c"): ConnectionRefusedError(111, "Connection refused"),
        Path("/d"): StatusError("/d: the reply is cut"),
    }
    code, out = run("--socket", "/a", "/b", "/c", "/d", "--socket", "/e")
    assert code == 3
    assert [line for line in out.splitlines() if line] == [
        "vn-agent: NOT READY  (/a)",
        "  NOT READY  no reason given",
        "/b: NO ANSWER: no answer within 3 s; the daemon is stopped or stuck",
        "/c: NO ANSWER: connection refused; the daemon was killed or has not started",
        "/d: NO ANSWER: /d: the reply is cut",
        "/e: NO ANSWER: No such file or directory",
    ]


def test_json_has_each_daemon(answers: dict[ListenAddress, int | Exception]) -> None:
    answers[Path("/a")] = 200
    code, out = run("-o", "json", "--socket", "/a", "/b")
    found = json.loads(out)
    first, second = found.pop("items")
    assert found == {"apiVersion": "vcnode.io/v1alpha1", "kind": "DaemonStatusList"}
    assert code == 3
    assert (first["address"], first["isReady"], first["readyz"]) == ("/a", True, ["tenants: ok"])
    assert first["status"] == {"daemon": "vn-agent", "newKey": [1]}, "the whole page"
    assert second == {"address": "/b", "isReady": False, "problem": "No such file or directory"}


def test_without_socket_the_whole_directory_is_queried(
    answers: dict[ListenAddress, int | Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "SOCKET_DIRECTORY", tmp_path)
    with pytest.raises(ToolError, match="no daemon runs here"):
        run()
    for name in ("b.sock", "a.sock", "a.pid", "kata-bridge.sock"):
        (tmp_path / name).touch()
    (tmp_path / "pods").mkdir()
    own = tmp_path / "vn-agent" / "status.sock"
    own.parent.mkdir()
    own.touch()
    answers |= {tmp_path / "a.sock": 200, tmp_path / "b.sock": 200, own: 200}
    code, out = run()
    assert code == 0
    assert out.index("a.sock") < out.index("b.sock") < out.index("vn-agent/status.sock")
    assert "a.pid" not in out
    assert "kata-bridge" not in out, "that socket speaks gRPC"


@pytest.mark.parametrize("address", ["x", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":1"])
def test_other_addresses_are_wrong_usage(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("--address", address)
    assert caught.value.code == 2
    assert "is not HOST:PORT" in capsys.readouterr().err
