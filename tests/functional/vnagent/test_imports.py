# SPDX-License-Identifier: Apache-2.0
"""A running vn-agent loads only the modules that it needs (docs/decisions/0002)."""

import subprocess
import sys

UNWANTED = {
    *("aiohttp", "cryptography", "h11", "jwt", "prometheus_client"),
    *("vnagent.pages.metrics", "vnagent.pages.runningpods", "vnagent.pages.stats"),
    *("argparse", "secrets", "shutil", "stringprep", "typing_extensions"),
}
PROGRAM = """
import socket, ssl, sys
import vnagent.__main__
from vnagent.transport.tls_connection import TlsConnection
from vnagent.transport.poller import SocketPoller
from vnagent.transport.cipher import Cipher
from daemonkit.run.command_line import parse_arguments
import asyncio

parse_arguments("vn-agent", ["--config", "vn-agent.yaml"])

async def dial():
    near, far = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    poller = SocketPoller(asyncio.get_running_loop())
    TlsConnection(poller, near, Cipher(context, is_server=False, server_hostname="node-1"), None).abort()
    far.close()

asyncio.run(dial())
print(*sys.modules)
import typing_extensions  # imported on demand only
"""


def test_no_unneeded_module_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "msgspec" in loaded
    assert loaded & UNWANTED == set()
