# SPDX-License-Identifier: Apache-2.0
"""Listening sockets that systemd keeps, with a socket in systemd's place."""

import os
import socket
from pathlib import Path

import pytest

from daemonkit.run.service_manager import ServiceManager, Supervision, send_notice

_DEADLINE_S = 20.0


def _listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def _manager(address: str, listeners: dict[str, int]) -> ServiceManager:
    return ServiceManager(Supervision(address, None, listeners, os.getppid()), send=send_notice)


def test_a_kept_listener_goes_on_with_its_backlog(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, _listening() as listener:
        systemd.bind(address)
        host, port = listener.getsockname()
        manager = _manager(address, {})
        manager.keep_listener("tenants", listener.fileno())
        assert manager.can_hand_over
        message, (kept,), _, _ = socket.recv_fds(systemd, 4096, 4)
        assert message == b"FDSTORE=1\nFDNAME=tenants"
        with socket.create_connection((host, port), timeout=_DEADLINE_S) as client:
            listener.close()
            found = _manager(address, {"tenants": kept}).take_listener("tenants", host, port)
            assert found is not None
            with found, found.accept()[0] as accepted:
                client.sendall(b"waited")
                assert accepted.recv(6) == b"waited"


def test_a_listener_of_another_address_is_given_back(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, _listening() as listener:
        systemd.bind(address)
        host, port = listener.getsockname()
        manager = _manager(address, {"tenants": listener.detach()})
        assert manager.take_listener("tenants", host, port + 1) is None
        assert systemd.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=tenants"
        assert manager.take_listener("tenants", host, port) is None


def test_listeners_that_nobody_takes_are_closed(tmp_path: Path) -> None:
    """The configuration has them no longer: nothing would accept their connections."""
    address = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        _listening() as first,
        _listening() as left,
    ):
        systemd.bind(address)
        (host, port), gone = first.getsockname(), left.getsockname()
        manager = _manager(address, {"tenants": first.detach(), "tokens-10551": left.detach()})
        taken = manager.take_listeners(host, {"tenants": port, "tokens-10552": 10552})
        assert list(taken) == ["tenants"]
        with taken["tenants"], socket.create_connection((host, port), timeout=_DEADLINE_S):
            assert systemd.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=tokens-10551"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(gone, timeout=_DEADLINE_S)


def test_a_descriptor_that_is_no_socket_is_left(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        manager = _manager("", {"tenants": file.fileno()})
        assert manager.take_listener("tenants", "127.0.0.1", 1) is None


def test_without_systemd_nothing_is_kept(tmp_path: Path) -> None:
    with _listening() as listener:
        manager = _manager(str(tmp_path / "nobody"), {})
        manager.keep_listener("tenants", listener.fileno())
    assert not manager.can_hand_over
