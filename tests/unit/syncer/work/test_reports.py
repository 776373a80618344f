# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from typing import Any, cast

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import PODS, Status
from devkit.syncer.fake_view import FakeView
from syncer.core.objects import SyncedKind
from syncer.core.plan import Change, Half, Plan, Refusal, Wait
from syncer.metrics import SyncerMetrics
from syncer.tenant.session import TenantSession
from syncer.work.reports import BURST, TenantReports
from syncer.work.slots import Slots

pytestmark = pytest.mark.asyncio

WAITING = Plan(Half(wait=Wait("FailedCreate", 'secret "s" not found')))


class _Clients:
    """Of a session what reports need. `sent` are the paths of all requests."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.tenant = SimpleNamespace(key="red")
        self.client = SimpleNamespace(request=self._request)
        self.kinds = {name: SimpleNamespace(kind=SyncedKind(PODS, name)) for name in ("Pod", "ConfigMap")}

    async def send(self, method: str, path: str, *_: Any, **__: Any) -> bytes:
        return await self._request(method, path)

    def view(self) -> FakeView:
        return FakeView()

    async def _request(self, method: str, path: str, *_: Any) -> bytes:
        self.sent.append(path.removeprefix("/api/v1/namespaces/web/"))
        return b"{}"


async def _plan(reports: TenantReports, clients: _Clients, name: str) -> bool:
    pod = {"metadata": {"namespace": "web", "name": name, "uid": f"u-{name}"}}
    session = cast("TenantSession", clients)
    return await reports.planned(session, ("Pod", "web", name), WAITING, pod)


async def test_more_waits_than_are_remembered_do_not_spin() -> None:
    """One that cannot be remembered is reported at once, not looked at again and again."""
    clients = _Clients()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: 0.0, Slots(1), max_remembered=2)
    assert [await _plan(reports, clients, name) for name in ("a", "b", "c")] == [False, False, True]
    assert clients.sent == ["pods/c/status", "events"]


async def test_reports_beyond_what_is_remembered_have_a_rate() -> None:
    """Else each patrol would report each of them anew, as each displaces another."""
    clients = _Clients()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: 0.0, Slots(1), max_remembered=1)
    for number in range(3 * BURST):
        await _plan(reports, clients, f"p-{number}")
    assert len(clients.sent) == 2 * BURST


async def test_a_text_of_any_length_is_remembered_in_part() -> None:
    """An API server answers 64 KB, of each of all the objects that are remembered."""
    clients = _Clients()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: 0.0, Slots(1))
    session, item = cast("TenantSession", clients), ("Pod", "web", "a")
    pod = {"metadata": {"namespace": "web", "name": "a", "uid": "u"}}
    await reports.failed(session, item, ApiError(Status(422, message="x" * 60_000)), pod)
    assert reports.last(session, item) == f"FailedCreate: {'x' * 1024}"


async def test_what_stays_is_reported_once_for_a_controller() -> None:
    """A Deployment of a thousand pods is one Event, not a thousand."""
    clients = _Clients()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: 0.0, Slots(1))
    owner = {"kind": "ReplicaSet", "uid": "r-1", "controller": True}
    changed = Plan(Half(changes=(Change("metadata.annotations[a.example/b]", "stays in this cluster"),)))
    session = cast("TenantSession", clients)
    for _ in range(2):
        for name in ("a", "b"):
            pod = {"metadata": {"namespace": "web", "name": name, "uid": name, "ownerReferences": [owner]}}
            await reports.planned(session, ("Pod", "web", name), changed, pod)
    assert clients.sent == ["events"]
    other = Plan(
        Half(changes=(*changed.changes, Change("metadata.annotations[c.example/d]", "stays in this cluster")))
    )
    await reports.planned(
        session, ("Pod", "web", "a"), other, {"metadata": {"uid": "a", "ownerReferences": [owner]}}
    )
    assert clients.sent == ["events", "events"]


async def test_what_stays_has_a_rate_of_its_own() -> None:
    clients = _Clients()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: 0.0, Slots(1))
    changed = Plan(Half(changes=(Change("metadata.annotations[a.example/b]", "stays in this cluster"),)))
    session = cast("TenantSession", clients)
    for number in range(3 * BURST):
        value = {"metadata": {"namespace": "web", "name": f"c-{number}", "uid": f"c-{number}"}}
        await reports.planned(session, ("ConfigMap", "web", f"c-{number}"), changed, value)
    assert len(clients.sent) == BURST
    refused = Plan(Half(refusals=(Refusal("spec.hostPID", "no"),)))
    await reports.planned(session, ("Pod", "web", "p"), refused, {"metadata": {"uid": "u"}})
    assert len(clients.sent) == BURST + 2
