# SPDX-License-Identifier: Apache-2.0
import argparse
from pathlib import Path

import msgspec
import pytest

from daemonkit.status import Address, StatusError
from vcnode import daemons
from vcnode.terminal import ToolError

WHERE = Path("/x.sock")


class Page(msgspec.Struct):
    daemon: str = "one"
    count: int = 0


def _answering(monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes] | Exception) -> None:
    def fetch(_address: Address, _path: str, _timeout_s: float) -> tuple[int, bytes]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(daemons, "fetch", fetch)


def test_a_page_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, (200, b'{"daemon": "one", "count": 3, "more": []}'))
    assert daemons.ask(WHERE, "/p", Page, "one") == Page("one", 3)


def test_another_code_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, (404, b"no such guest\n"))
    with pytest.raises(daemons.Refusal, match=r"^no such guest$"):
        daemons.ask(WHERE, "/p", Page, "one")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "x.sock: Connection refused; does one run here"),
        (TimeoutError(), "nothing within 3 s; is one stopped or stuck"),
        (StatusError("cut"), "not one's"),
        ((200, b"\xff"), "not one's"),
        ((200, b'{"count": "many"}'), "not one's"),
        ((200, b'{"daemon": "other"}'), "this is other, not one"),
    ],
)
def test_who_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes] | Exception, why: str
) -> None:
    _answering(monkeypatch, answer)
    with pytest.raises(ToolError, match=why):
        daemons.ask(WHERE, "/p", Page, "one")


def test_where_to_ask_is_a_socket_or_an_address() -> None:
    parser = argparse.ArgumentParser()
    daemons.add_where(parser, WHERE, "one")
    assert daemons.address_of(parser.parse_args([])) == WHERE
    assert daemons.address_of(parser.parse_args(["--socket", "/y"])) == Path("/y")
    assert daemons.address_of(parser.parse_args(["--address", "[::1]:9"])) == ("::1", 9)
