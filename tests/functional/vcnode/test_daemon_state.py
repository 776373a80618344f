# SPDX-License-Identifier: Apache-2.0
"""`vcnode status` and `vcnode log-level` at a real dnsconfig."""

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.functional.daemon_node import running
from tests.functional.dnsconfig.node import DnsNode

pytestmark = [pytest.mark.asyncio, pytest.mark.functional]


async def vcnode(*words: str) -> tuple[int, str]:
    """Exit code and output of the tool."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vcnode", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def test_unready_daemon_names_hop_error_age_and_remedy(tmp_path: Path) -> None:
    async with running(DnsNode(tmp_path)) as node:
        await node.until(node.is_ready)
        await node.bridge.stop()
        await node.apiserver.stop()
        node.bridge_socket.unlink(missing_ok=True)
        await node.until(lambda: _has(node, "no such file or directory"))
        # It is not ready, and to start it anew would help nobody.
        assert await vcnode("status", "--alive", "--socket", str(node.socket)) == (
            0,
            f"{node.socket}: alive\n",
        )
        await node.stop()
        code, printed = await vcnode("status", "--alive", "--socket", str(node.socket))
        assert (code, printed.startswith(f"{node.socket}: ")) == (3, True)
        await node.start()
        await node.until(lambda: _has(node, "connection refused"))
        code, printed = await vcnode("status", "--socket", str(node.socket))
        lines = printed.splitlines()
        bridge = next(line for line in lines if "NOT READY" in line and "kata-bridge" in line)
    assert code == 1
    assert f" s: kata-bridge {node.bridge_socket}: no such file or directory; start kata-bridge" in bridge
    stale = next(line for line in lines if "super cluster https://127.0.0.1" in line)
    assert "cannot be read for" in stale
    assert "connection refused; check that the API server runs" in stale


async def _has(node: DnsNode, text: str) -> bool:
    return text in (await node.get("/readyz"))[1]


async def test_log_level_changes_until_sighup(tmp_path: Path) -> None:
    async with running(DnsNode(tmp_path)) as node:
        await node.until(node.is_ready)
        where = ("--socket", str(node.socket))
        changed = "debug until SIGHUP or a restart; configured: info"
        assert await vcnode("log-level", "dnsconfig", "debug", *where) == (0, f"dnsconfig: {changed}\n")
        status = (await vcnode("status", *where))[1]
        assert re.search(f"\n  log level +{changed}\n", status)
        assert '"message":"log level changed","log_level":"debug","previous":"info"' in node.log.read_text()
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        await node.until(lambda: "log level restored" in node.log.read_text())
        assert await vcnode("log-level", "dnsconfig", *where) == (0, "dnsconfig: info\n")
