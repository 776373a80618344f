# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from daemonkit.tasks import Tasks
from kata_bridge.start_gate import network_readiness_sync, node_condition_sync, super_cluster_writer
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.start_gate.super_cluster_writer import SuperClusterWriter
from tests.functional.kata_bridge.start_gate.gated_node import GatedNode, gated
from tests.functional.kata_bridge.start_gate.recording_server import Harness, RecordingServer


@pytest_asyncio.fixture
async def node(short_dir: Path) -> AsyncIterator[GatedNode]:
    async with gated(short_dir) as running:
        yield running


@pytest_asyncio.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    monkeypatch.setattr(super_cluster_writer, "RETRIES_S", (0.01, 0.01))
    monkeypatch.setattr(network_readiness_sync, "READINESS_S", 0.02)
    monkeypatch.setattr(node_condition_sync, "CONDITION_S", 0.02)
    server = RecordingServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    tasks = Tasks("reports")
    writer = SuperClusterWriter(kubeconfig, "worker-1")
    nudges: list[str] = []
    notifier = PodNotifier(writer, tasks, nudges.append)
    yield Harness(server, writer, notifier, tasks, nudges)
    await tasks.close(2.0)
    await writer.close()
    await runner.cleanup()
