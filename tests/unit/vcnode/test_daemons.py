# SPDX-License-Identifier: Apache-2.0
import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import dnsconfig.config
import kata_bridge.config
import kubeproxy_ext.config
import vnagent.config
from daemonkit.status.server import ListenAddress, StatusError
from vcnode import daemons
from vcnode.terminal import ToolError

WHERE = Path("/x.sock")


class StatusPage(msgspec.Struct):
    daemon: str = "one"
    count: int = 0


def _responding(monkeypatch: pytest.MonkeyPatch, response: tuple[int, bytes] | Exception) -> None:
    def fetch(_address: ListenAddress, _path: str, _timeout_s: float, _method: str) -> tuple[int, bytes]:
        if isinstance(response, Exception):
            raise response
        return response

    monkeypatch.setattr(daemons, "fetch", fetch)


def test_page_is_read_as_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    _responding(monkeypatch, (200, b'{"daemon": "one", "count": 3, "more": []}'))
    assert daemons.ask(WHERE, "/p", StatusPage, "one") == StatusPage("one", 3)


def test_other_status_code_is_an_error_response(monkeypatch: pytest.MonkeyPatch) -> None:
    _responding(monkeypatch, (404, b"no such guest\n"))
    with pytest.raises(daemons.ErrorResponse, match=r"^no such guest$"):
        daemons.ask(WHERE, "/p", StatusPage, "one")


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "x.sock: Connection refused; does one run here"),
        (
            FileNotFoundError(2, "No such file or directory"),
            r"No such file or directory; does one run here\? `status.socket` in its configuration sets this",
        ),
        (TimeoutError(), "no answer within 3 s; one is stopped or stuck"),
        (StatusError("cut"), "not an answer of one"),
        ((200, b"\xff"), "not an answer of one"),
        ((200, b'{"count": "many"}'), "not an answer of one"),
        ((200, b'{"daemon": "other"}'), "this is other, not one"),
    ],
)
def test_wrong_or_missing_response_names_the_daemon(
    monkeypatch: pytest.MonkeyPatch, response: tuple[int, bytes] | Exception, why: str
) -> None:
    _responding(monkeypatch, response)
    with pytest.raises(ToolError, match=why):
        daemons.ask(WHERE, "/p", StatusPage, "one")


def test_daemon_is_queried_at_a_socket_or_an_address() -> None:
    parser = argparse.ArgumentParser()
    daemons.add_where(parser, WHERE, "one")
    assert daemons.address_of(parser.parse_args([])) == WHERE
    assert daemons.address_of(parser.parse_args(["--socket", "/y"])) == Path("/y")
    assert daemons.address_of(parser.parse_args(["--address", "[::1]:9"])) == ("::1", 9)


_EXAMPLES = Path(__file__).parents[3] / "examples"
# The status address in a configuration, and the address that is queried.
_SOCKETS: dict[str, tuple[Callable[[Path], Path | None], Path]] = {
    "kata-bridge": (lambda file: kata_bridge.config.load(file).status.socket, daemons.BRIDGE_STATUS),
    "kubeproxy-ext": (lambda file: kubeproxy_ext.config.load(file).status.socket, daemons.PROXY_STATUS),
    "dnsconfig": (lambda file: dnsconfig.config.load(file).status.socket, daemons.DNS_STATUS),
    "vn-agent": (
        lambda file: vnagent.config.load(file).status.socket,
        daemons.SOCKET_DIRECTORY / "vn-agent" / "status.sock",
    ),
}


@pytest.mark.parametrize("name", _SOCKETS)
def test_example_configuration_serves_the_default_socket(name: str, tmp_path: Path) -> None:
    """Without `status.socket` a daemon serves no status."""
    shim_socket, arguments = _SOCKETS[name]
    file = tmp_path / "config.yaml"
    # The group is not on this machine.
    file.write_text((_EXAMPLES / f"{name}.yaml").read_text().replace("listen: {group: vcnode}", "listen: {}"))
    assert shim_socket(file) == arguments
