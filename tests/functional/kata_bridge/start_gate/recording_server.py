# SPDX-License-Identifier: Apache-2.0
"""An API server that records what the start gate writes to the super cluster. The k8s ring has a real one."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from daemonkit.tasks import Tasks
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.start_gate.super_cluster_writer import SuperClusterWriter
from tests.waiting import until

POD = Sandbox("s1", "vc-a-shop", "web-0", "uid-1", tenant="vc-a")
OTHER_POD = Sandbox("s2", "vc-a-shop", "web-1", "uid-2", tenant="vc-a")
POD_PATH = "/api/v1/namespaces/vc-a-shop/pods/web-0"


@dataclass(slots=True)
class RecordingServer:
    """An API server that records requests and responds with `statuses`, then 200."""

    requests: list[tuple[str, str, str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            (request.method, request.path, request.content_type, json.loads(await request.read()))
        )
        await asyncio.sleep(self.delay_s)
        status = self.statuses.pop(0) if self.statuses else 200
        body = {"metadata": {"uid": "uid-1", "annotations": self.annotations}, "code": status}
        return web.json_response(body, status=status)

    def of(self, path: str) -> list[Any]:
        return [body for _, request_path, _, body in self.requests if request_path == path]


@dataclass(slots=True)
class Harness:
    server: RecordingServer
    super_cluster: SuperClusterWriter
    notifier: PodNotifier
    tasks: Tasks
    nudges: list[str]
    readiness: list[tuple[str, str | None]] = field(default_factory=list)
    waiting: list[Sandbox] = field(default_factory=list)

    async def idle(self) -> None:
        """Wait until no request is in flight or queued."""
        await until(lambda: not len(self.tasks))

    def readings(self, sandbox: str) -> int:
        """How often a sandbox's annotation was read."""
        return sum(each == sandbox for each, _ in self.readiness)
