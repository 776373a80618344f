# SPDX-License-Identifier: Apache-2.0
"""The demo's shell and web server of a guest, as a process on loopback."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.functional.vcnode.asked_program import DEADLINE_S, AskedProgram
from vcnode_demo import guest_program

Shells = tuple[AskedProgram, AskedProgram]


@pytest.fixture
def shells() -> Iterator[Shells]:
    """One that asks and one that serves."""
    both = AskedProgram(guest_program, "a guest"), AskedProgram(guest_program, "a guest")
    yield both
    for each in both:
        each.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_it_serves_requests_and_ends_with_its_input(shells: Shells) -> None:
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


def test_until_waits_for_a_word(shells: Shells) -> None:
    asks, serves = shells
    port = _free_port()
    asks.send("until", "127.0.0.1", port, "shop", DEADLINE_S)
    began_s = time.monotonic()
    serves.ask("serve", port, "acme's shop")
    said = asks.receive()
    assert said["body"] == "acme's shop"
    assert began_s < said["at"] <= time.monotonic()
    assert "no such word" not in asks.ask("until", "127.0.0.1", port, "no such word", 0.1)["body"]


def test_leave_waits_until_a_word_is_gone(shells: Shells) -> None:
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
