# SPDX-License-Identifier: Apache-2.0
import socket
from urllib.parse import urlsplit

import pytest

from vcnode_demo.super_cluster import FakeSuperCluster


def _address(super_cluster: FakeSuperCluster) -> tuple[str, int]:
    url = urlsplit(super_cluster.url)
    return str(url.hostname), int(url.port or 0)


def test_a_paused_super_cluster_keeps_its_port() -> None:
    """vn-agent starts on a free port during the outage; it once got that of the super cluster."""
    super_cluster = FakeSuperCluster("node-1")
    super_cluster.start()
    try:
        address = _address(super_cluster)
        super_cluster.pause()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        super_cluster.resume()
        assert _address(super_cluster) == address
    finally:
        super_cluster.stop()
