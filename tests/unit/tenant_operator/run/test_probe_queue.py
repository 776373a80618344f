# SPDX-License-Identifier: Apache-2.0
"""Probes beside the workers: whom they hold up, and what their answers lead to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daemonkit.kube.resources import Key
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import RotationProbe, SyncerProbe, TenantProbe
from tenant_operator.core.rotations import SUPPORTED
from tenant_operator.model.objects import Ref
from tenant_operator.run.probe_queue import AT_ONCE, FAILURES, SLOW_S, ProbeQueue
from tenant_operator.run.queue import ReconcileQueue
from tests.unit.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

FINE = ProbeResult(is_ok=True, at=1.0)
SILENT = ProbeResult(is_ok=False, at=1.0, detail="no answer within 5 s")


class HeldProber:
    """Answers when a test says so."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Future[ProbeResult]] = {}
        self.count = 0

    async def run(self, probe: TenantProbe) -> ProbeResult:
        assert isinstance(probe, SyncerProbe)
        self.count += 1
        self.held[probe.uid] = asyncio.get_running_loop().create_future()
        return await self.held[probe.uid]


class AskedParts:
    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.prober = HeldProber()
        self.queue = ReconcileQueue(self.clock, lambda: 1.0)
        parts: Any = self.prober
        self.probes = ProbeQueue(parts, self.queue, self.clock)
        self.results: dict[str, dict[str, ProbeResult]] = {}

    async def ask(self, uid: str, before: ProbeResult | None = None) -> None:
        known = self.results.setdefault(uid, {})
        if before is not None:
            known["syncer"] = before
        self.probes.ask(uid, key_of(uid), [SyncerProbe("x", uid)], known)
        await switches()

    async def answer(self, uid: str, result: ProbeResult) -> None:
        self.prober.held.pop(uid).set_result(result)
        await switches()

    async def planned(self) -> list[Key]:
        """What is to be planned now."""
        found = []
        while len(self.queue):
            found.append(await self.queue.take())
            self.queue.done(found[-1], has_failed=False)
        return found


def key_of(uid: str) -> Key:
    return "tenants", uid


async def switches() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_who_does_not_answer_holds_up_no_other() -> None:
    parts = AskedParts()
    for number in range(100):
        before = ProbeResult(is_ok=False, at=0.0, failures=FAILURES)
        await parts.ask(f"silent-{number}", before)
    assert len(parts.prober.held) == AT_ONCE
    await parts.ask("new")
    await parts.ask("well", FINE)
    assert {"new", "well"} < parts.prober.held.keys()
    await parts.probes.close(1.0)


async def test_all_are_asked_in_the_end_and_once_each() -> None:
    parts = AskedParts()
    for number in [*range(30), *range(30)]:
        await parts.ask(f"t{number}")
    while parts.prober.held:
        await parts.answer(next(iter(parts.prober.held)), FINE)
    assert parts.prober.count == 30
    assert sorted(await parts.planned()) == sorted(key_of(f"t{number}") for number in range(30))


@pytest.mark.parametrize(
    ("before", "found", "failures", "is_news"),
    [
        (None, FINE, 0, True),
        (None, SILENT, 1, True),
        (SILENT, FINE, 0, True),
        (FINE, SILENT, 1, True),
        (FINE, FINE, 0, False),
        (ProbeResult(is_ok=False, at=0.0, failures=6), SILENT, 7, False),
        (ProbeResult(is_ok=False, at=0.0, failures=6, facts={"a": "1"}), SILENT, 1, True),
    ],
)
async def test_answer_is_kept_and_planned(
    before: ProbeResult | None, found: ProbeResult, failures: int, *, is_news: bool
) -> None:
    parts = AskedParts()
    await parts.ask("acme", before)
    await parts.answer("acme", found)
    kept = parts.results["acme"]["syncer"]
    assert (kept.is_ok, kept.detail, kept.facts, kept.failures) == (
        *(found.is_ok, found.detail, found.facts),
        failures,
    )
    assert await parts.planned() == [key_of("acme")] * is_news
    parts.clock.now = 1.0
    if not is_news:
        assert await parts.queue.take() == key_of("acme")
    await parts.ask("acme")
    assert "acme" in parts.prober.held
    await parts.probes.close(1.0)


async def test_after_a_restart_all_are_asked_anew() -> None:
    parts = AskedParts()
    for number in range(30):
        await parts.ask(f"t{number}")
    await parts.probes.close(1.0)
    parts.prober.held.clear()
    parts.probes.start()
    await parts.ask("t29")
    assert set(parts.prober.held) == {"t29"}
    await parts.probes.close(1.0)


class SlowProber:
    """Rotations are answered when a test says so, well; all else at once."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Future[None]] = {}

    async def run(self, probe: TenantProbe) -> ProbeResult:
        if isinstance(probe, RotationProbe):
            self.held[probe.secret.namespace] = asyncio.get_running_loop().create_future()
            await self.held[probe.secret.namespace]
        return FINE


async def test_rotations_of_an_owner_hold_up_no_other() -> None:
    """Five tenants rotate all that there is; their parts answer well, and late."""
    clock, prober = FakeClock(0.0), SlowProber()
    parts: Any = prober
    probes = ProbeQueue(parts, ReconcileQueue(clock, lambda: 1.0), clock)
    rotations = [RotationProbe(what, Ref("Secret", "key", "s"), "1") for what in sorted(SUPPORTED)]
    results: dict[str, dict[str, ProbeResult]] = {f"t{number}": {} for number in range(5)}
    for _ in range(2 * len(rotations)):
        for uid, known in results.items():
            own = [RotationProbe(each.what, Ref("Secret", uid, "s"), "1") for each in rotations]
            probes.ask(uid, key_of(uid), own, known)
        await switches()
        assert len(prober.held) == len(results)  # one of each
        new: dict[str, ProbeResult] = {}
        probes.ask("new", key_of("new"), [SyncerProbe("x", "new")], new)
        await switches()
        assert new["syncer"].is_ok
        clock.now += SLOW_S + 0.1
        for each in list(prober.held):
            prober.held.pop(each).set_result(None)
        await switches()
    # All of them have been asked about in turn, and wait for slow ones alone.
    assert {uid: len(known) for uid, known in results.items()} == dict.fromkeys(results, len(rotations))
    assert all(each.is_ok and each.is_slow for known in results.values() for each in known.values())
    for number in range(AT_ONCE):
        uid = f"other{number}"
        probes.ask(uid, key_of(uid), [RotationProbe("x", Ref("Secret", uid, "s"), "1")], {})
    await switches()
    assert len(prober.held) == len(results) + AT_ONCE
    await probes.close(1.0)
