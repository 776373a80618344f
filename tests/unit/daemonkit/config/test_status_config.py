# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config.status_config import StatusConfig


def test_listen_at_is_a_socket_an_address_or_none() -> None:
    assert StatusConfig().listen_at is None
    assert StatusConfig(socket=Path("/run/vcnode/x.sock")).listen_at == Path("/run/vcnode/x.sock")
    assert StatusConfig(address="::1", port=8080).listen_at == ("::1", 8080)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.1.2.3", "::1", None])
def test_loopback_addresses_are_accepted(address: str | None) -> None:
    assert list(StatusConfig(address=address).problems()) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.1", "::", "node-1", "127.0.0.1:80", ""])  # noqa: S104 - refused
def test_other_addresses_are_refused(address: str) -> None:
    assert list(StatusConfig(address=address).problems()) == [
        f"address: expected a loopback address, got {address!r}"
    ]


def test_socket_and_address_exclude_each_other() -> None:
    both = StatusConfig(socket=Path("/run/x.sock"), address="127.0.0.1")
    assert list(both.problems()) == ["socket: give socket or address, not both"]
