# SPDX-License-Identifier: Apache-2.0
"""The demo's DNS server, and its program that asks, as processes on loopback."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vcnode.demo import dns_program
from vcnode.dns_message import Type
from vcnode.dns_query import ask_all

DEADLINE_S = 30.0


class Program:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(dns_program.__file__)), "a server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, *given: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({verb: given}) + "\n")
        self.process.stdin.flush()
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


def test_it_serves_names_says_what_was_asked_and_ends_with_its_input(program: Program) -> None:
    port = _free_port()
    assert program.ask("up") == {}
    assert program.ask("names", "127.0.0.1", {"db.web": "10.0.0.31"}, "", port) == {}
    found = ask_all(("db", "db.web"), Type.A, ("127.0.0.1",), None, port)
    assert [each.answer.code for each in found if each.answer is not None] == ["NXDOMAIN", "NOERROR"]
    assert program.ask("asked") == {"names": ["db", "db.web"]}
    assert program.close() == 0


def test_it_resolves_as_any_program_does(program: Program) -> None:
    found = program.ask("lookup", "localhost")
    assert (found["addresses"], found["error"]) == (["127.0.0.1"], "")
    assert found["s"] >= 0
    # No name at all, so that nobody has to be asked.
    lost = program.ask("lookup", "nobody..invalid")
    assert lost["addresses"] == []
    assert lost["error"]
    followed = program.ask("follow", "localhost", "127.0.0.1", DEADLINE_S)
    assert (followed["addresses"], followed["at"] > 0) == (["127.0.0.1"], True)
    assert program.ask("follow", "localhost", "192.0.2.1", 0.05)["addresses"] == ["127.0.0.1"]


def test_it_reads_files_as_they_are_where_it_runs(program: Program, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 10.0.0.53\n")
    assert program.ask("read", str(tmp_path / "resolv.conf")) == {"text": "nameserver 10.0.0.53\n"}
