# SPDX-License-Identifier: Apache-2.0
"""The Events that a tenant gets about an object that is not in the super cluster."""

import asyncio
import itertools
import json
from typing import Any

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import Status
from syncer.metrics import SyncerMetrics
from syncer.tenant.deletions import SyncKey
from syncer.work.reports import REPORT_WAIT_S, TenantReports
from syncer.work.slots import Slots
from tests.cases.sync.server_defaults import Object
from tests.cases.sync.world import KINDS, World

_FIELDS = ("reason", "type", "message", "source", "reportingComponent", "involvedObject")
_OBJECT_FIELDS = ("kind", "namespace", "name")


class _EventSession:
    """What reports need of a session; keeps the Events that are posted."""

    def __init__(self, world: World) -> None:
        self.tenant = world.tenant
        self.view = world.view
        self.client = self
        self.kinds = KINDS
        self.events: list[Object] = []

    async def send(self, *_: object, **__: object) -> bytes:
        return b""

    async def request(self, method: str, path: str, params: object, body: bytes) -> bytes:
        del method, path, params
        self.events.append(json.loads(body))
        return b""


def events_of(world: World, item: SyncKey, tenant: Object) -> list[Object]:
    """The Events of the last plan, or of its refusal by the API server; in the fields that cases have."""
    session: Any = _EventSession(world)
    clock = itertools.count(0.0, REPORT_WAIT_S)
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: next(clock), Slots(1))

    async def report() -> None:
        if world.refused_by_server:
            error = ApiError(Status(code=403, message=world.refused_by_server))
            await reports.failed(session, item, error, tenant)
            return
        for _ in range(2):  # a wait is reported when it lasts
            await reports.planned(session, item, world.last_plan, tenant)

    asyncio.run(report())
    return [_part(each) for each in session.events]


def _part(event: Object) -> Object:
    found = {field: event[field] for field in _FIELDS if field in event}
    found["source"] = {"host": event["source"]["host"]}
    found["involvedObject"] = {field: event["involvedObject"][field] for field in _OBJECT_FIELDS}
    return found
