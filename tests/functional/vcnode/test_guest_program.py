# SPDX-License-Identifier: Apache-2.0
"""The demo's shell and web server of a guest, as a process on loopback."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vcnode.demo import guest_program

DEADLINE_S = 30.0


class Shell:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guest_program.__file__)), "a guest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, verb: str, *given: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({verb: given}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def ask(self, verb: str, *given: object) -> dict[str, Any]:
        self.send(verb, *given)
        return self.receive()

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
def shells() -> Iterator[tuple[Shell, Shell]]:
    """One that asks and one that serves."""
    both = Shell(), Shell()
    yield both
    for each in both:
        each.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_it_asks_serves_and_ends_with_its_input(shells: tuple[Shell, Shell]) -> None:
    asks, serves = shells
    port = _free_port()
    said = asks.ask("get", "127.0.0.1", port, 1.0)
    assert said["error"] == "Connection refused"
    assert serves.ask("serve", port, "acme's shop") == {}
    said = asks.ask("get", "127.0.0.1", port, 1.0)
    assert said["body"] == "acme's shop"
    assert 0 < said["s"] < 1
    assert serves.close() == 0
    assert asks.ask("get", "127.0.0.1", port, 1.0)["error"] == "Connection refused"


def test_it_waits_for_a_word(shells: tuple[Shell, Shell]) -> None:
    asks, serves = shells
    port = _free_port()
    asks.send("until", "127.0.0.1", port, "shop", DEADLINE_S)
    began_s = time.monotonic()
    serves.ask("serve", port, "acme's shop")
    said = asks.receive()
    assert said["body"] == "acme's shop"
    assert began_s < said["at"] <= time.monotonic()
    assert "no such word" not in asks.ask("until", "127.0.0.1", port, "no such word", 0.1)["body"]


def test_it_sees_when_a_word_has_left(shells: tuple[Shell, Shell]) -> None:
    asks, serves = shells
    port = _free_port()
    serves.ask("serve", port, "acme's shop")
    assert asks.ask("leave", "127.0.0.1", port, "globex", DEADLINE_S) == {
        "last": 0.0,
        "answers": guest_program.IN_A_ROW,
        "errors": 0,
        "left": True,
    }
    said = asks.ask("leave", "127.0.0.1", port, "acme", 0.1)
    assert (said["left"], said["errors"]) == (False, 0)
    assert said["last"] > 0
