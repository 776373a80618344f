# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kata_bridge.channels.stock.agent_client import (
    HybridVsockAddress,
    ShimAddress,
    UnixAddress,
    VsockAddress,
    parse_agent_url,
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("vsock://3:1024", VsockAddress(3, 1024)),
        ("vsock://2718281828:1024", VsockAddress(2718281828, 1024)),
        (
            "hvsock:///run/vc/vm/ab12/clh.sock:1024",
            HybridVsockAddress(Path("/run/vc/vm/ab12/clh.sock"), 1024),
        ),
        ("hvsock:///run/a:b/kata.hvsock:1024", HybridVsockAddress(Path("/run/a:b/kata.hvsock"), 1024)),
        ("unix:///run/peerpod/pods/ab12/agent.ttrpc", UnixAddress("/run/peerpod/pods/ab12/agent.ttrpc")),
        ("unix://@/tmp/agent.sock", UnixAddress("\0/tmp/agent.sock")),
    ],
)
def test_agent_url_is_parsed(url: str, address: ShimAddress) -> None:
    assert parse_agent_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "vsock://3",
        "vsock://-1:1024",
        "vsock://x:1024",
        "hvsock://relative:1024",
        "hvsock:///run/clh.sock",
        "unix://",
        "tcp://10.0.0.1:1024",
        "vsock://3:1024\n",
        "404 page not found",
    ],
)
def test_invalid_agent_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="is not the address of an agent"):
        parse_agent_url(url)
