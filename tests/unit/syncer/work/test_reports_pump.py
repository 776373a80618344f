# SPDX-License-Identifier: Apache-2.0
"""Work for reports to tenants and operators grows as the objects and the plans do, and no faster."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import Status
from daemonkit.kube.shared_budget import SharedBudget
from syncer.core.fair_queue import Depths
from syncer.core.objects import Object
from syncer.core.plan import Change, Half, Plan, Refusal, Wait
from syncer.metrics import SyncerMetrics
from syncer.run.report import StatusReport
from syncer.tenant.session import TenantSession
from syncer.work.reports import REPORT_WAIT_S, SYNCED_CONDITION, TenantReports
from syncer.work.slots import Slots
from tests.pump import CHARS, Sizes, Text, steps, superlinear
from tests.unit.conftest import VirtualTimeLoop
from tests.unit.syncer.work.test_reports import _Clients

_REFUSALS, _CHANGES, _TEXT = "refusals", "changes", "text"
_OWNERS, _CONDITIONS, _OBJECTS, _TENANTS = "owners", "conditions", "objects", "tenants"
_PLACES = (_REFUSALS, _CHANGES, _TEXT, _OWNERS, _CONDITIONS, _OBJECTS, _TENANTS)


def _plans(sizes: Sizes) -> list[Plan]:
    """One of each outcome, the last one without a fault."""
    text = Text("x" * CHARS * (1 + sizes.get(_TEXT, 0)))
    refusals = tuple(
        Refusal(f"spec.a[{n}]", text if n == 0 else "no") for n in range(1 + sizes.get(_REFUSALS, 0))
    )
    changes = tuple(
        Change(f"spec.b[{n}]", text if n == 0 else "gone") for n in range(1 + sizes.get(_CHANGES, 0))
    )
    return [
        Plan(Half(refusals=refusals)),
        Plan(Half(wait=Wait("Waits", text))),
        Plan(Half(changes=changes)),
    ]


def _object(sizes: Sizes, name: str, *, is_first: bool) -> Object:
    """The first one has the lists that are pumped."""
    owners = 1 + (sizes.get(_OWNERS, 0) if is_first else 0)
    conditions = 1 + (sizes.get(_CONDITIONS, 0) if is_first else 0)
    return {
        "metadata": {
            "name": name,
            "namespace": "web",
            "uid": f"u-{name}",
            "ownerReferences": [{"kind": "ReplicaSet", "uid": f"r-{n}"} for n in range(owners)],
        },
        "status": {
            "conditions": [{"type": f"a-{n}", "status": "True"} for n in range(conditions - 1)]
            + [{"type": SYNCED_CONDITION, "status": "False"}]
        },
    }


class _AnyTime:
    seconds = 0.0


async def _report(sizes: Sizes) -> TenantReports:
    time = _AnyTime()
    reports = TenantReports(SyncerMetrics(), lambda: 0.0, lambda: time.seconds, Slots(1))
    session = cast("TenantSession", _Clients())
    answer = ApiError(Status(422, message=Text("x" * CHARS * (1 + sizes.get(_TEXT, 0)))))
    for number in range(1 + sizes.get(_OBJECTS, 0)):
        item, own = ("Pod", "web", f"p-{number}"), _object(sizes, f"p-{number}", is_first=number == 0)
        for plan in _plans(sizes if number == 0 else {}):
            await reports.planned(session, item, plan, own)
            time.seconds += 2 * REPORT_WAIT_S
            await reports.planned(session, item, plan, own)
        await reports.failed(session, item, answer, own)
        await reports.renewal(session, item, f"u-{number}", "no token")
    return reports


def _status(reports: TenantReports, sizes: Sizes) -> dict[str, object]:
    """The page of so many tenants; the first has objects that are not synced."""
    tenants = [_attached("red"), *(_attached(f"t-{n}") for n in range(sizes.get(_TENANTS, 0)))]
    nothing: Any = SimpleNamespace(
        has_synced=True, failure=None, reflectors={}, conflicts={}, depths=lambda _: Depths()
    )
    attachments: Any = SimpleNamespace(
        by_source={each.session.tenant.key: each for each in tenants}, sessions={}
    )
    budget = SharedBudget(1 << 30)
    for each in tenants:
        budget.join(each.session.memory.budget)
    report = StatusReport(
        attachments, nothing, nothing, reports, nothing, lambda: "", clock=lambda: 0.0, memory=budget
    )
    report.readiness()
    report.tenant_states()
    return report.status(0.0)


class _Held:
    """Of a tenant's budget what the page reads."""

    held_bytes = counted_bytes = 1

    def count(self) -> None: ...
    def end(self) -> None: ...


def _attached(key: str) -> Any:
    session = SimpleNamespace(
        tenant=SimpleNamespace(key=key, weight=1),
        memory=SimpleNamespace(budget=_Held()),
        account=SimpleNamespace(used_ns=1),
        deletions=SimpleNamespace(holds=dict),
        caches=SimpleNamespace(failure=None),
        is_attached=True,
        last_error="",
        network_problem="",
    )
    return SimpleNamespace(session=session, problem=None, state=SimpleNamespace(virtual_cluster=None))


def test_work_for_reports_is_no_product_of_two_lists() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:

        def measure(sizes: Sizes) -> int:
            return steps(lambda: _status(runner.run(_report(sizes)), sizes))

        measure({})  # what is made once
        assert superlinear(measure, _PLACES, first=8, noise=1_000) == []
