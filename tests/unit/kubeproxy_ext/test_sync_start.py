# SPDX-License-Identifier: Apache-2.0
"""After a start guests get complete rules only, or those of the saved state."""

import asyncio
from pathlib import Path

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, SERVICES
from daemonkit.metrics import Counter
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError
from kubeproxy_ext.cache.tenants import SavedTenant
from kubeproxy_ext.saved_state import SavedTenants
from kubeproxy_ext.sync import GRACE_S
from ruleset.document import Ruleset
from tests.unit.kubeproxy_ext.nodes import HOLD_S, WALL, EngineNode, node

pytestmark = pytest.mark.asyncio


async def saved_by(first: EngineNode) -> dict[str, SavedTenant]:
    """The saved state of an earlier daemon that served guest g1."""
    first.bridge.add("g1", "a")
    async with first.running():
        return {"a": first.snapshot("a")}


async def test_nothing_is_pushed_before_all_lists_synced() -> None:
    it = node()
    it.bridge.add("g", "a")
    # Namespaces and the Node are listed, and the next lists fail for a time.
    it.transport.failures = []
    async with it.running(0.0):
        await asyncio.sleep(0.012)
        # More than a second's retries, however short the jitter makes their pauses.
        it.transport.failures = [UnreachableError("x")] * 1000
        await asyncio.sleep(1)
        assert it.bridge.ruleset_requests == []
        status = it.report.status(0.0)
        assert status["tenants"] == {
            "a": {"syncState": "notSynced", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": None}
        }
        assert not it.report.readiness().is_ready
        it.transport.failures = []
        await asyncio.sleep(120)
        assert "10.96.0.1" in it.text("g")
        assert it.report.readiness().is_ready


async def test_refused_kind_is_stale_and_logged_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    it = EngineNode()
    it.put_tenant("a")
    it.put("a", "web", "10.96.0.1", "10.0.0.1")
    it.bridge.add("g", "a")
    async with it.running():
        assert it.report.readiness().lines[3].startswith("services: ok, age ")
        it.storage.absent.add(SERVICES)
        it.transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        await asyncio.sleep(10)
        capsys.readouterr()
        await asyncio.sleep(3600)
        assert "failed" not in capsys.readouterr().err
        readiness = it.report.readiness()
        assert readiness.is_ready
        assert readiness.lines[3].startswith("services: stale, age 36")
        assert "s: super cluster: services: 404 " in readiness.lines[3]


async def test_without_apiserver_new_guests_get_saved_services() -> None:
    first = node()
    saved = await saved_by(first)
    it = EngineNode(first.storage, saved)
    it.bridge = first.bridge
    it.transport.failures = [UnreachableError("x")] * 12
    it.bridge.ruleset_requests.clear()
    it.bridge.add("g2", "a")
    it.bridge.add("g3", "b")
    async with it.running(0.0):
        await asyncio.sleep(GRACE_S - 0.1)
        assert it.bridge.ruleset_requests == []
        await asyncio.sleep(0.3)
        assert [each.guest for each in it.bridge.ruleset_requests] == ["g2"]
        assert it.text("g2") == it.text("g1")
        status = it.report.status(it.controller.tenants["a"].restored_at + 5.0)
        assert status["tenants"] == {
            "a": {"syncState": "lastKnown", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": 65.0},
            "b": {"syncState": "notSynced", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": None},
        }
        it.put("a", "new", "10.96.0.9", "10.0.0.9")
        await asyncio.sleep(60)
        assert all("10.96.0.9" in it.text(guest) for guest in ("g1", "g2"))
        assert it.controller.tenants["a"].sync_state == "synced"


async def test_deleted_saved_services_go_when_the_tenant_syncs() -> None:
    first = node()
    first.put("a", "old", "10.96.0.8", "10.0.0.8")
    saved = await saved_by(first)
    first.storage.delete(SERVICES, "a-default", "old")
    first.storage.delete(ENDPOINT_SLICES, "a-default", "old-1")
    it = EngineNode(first.storage, saved)
    it.bridge.add("g2", "a")
    it.transport.failures = [UnreachableError("x")] * 8
    async with it.running(GRACE_S + 0.1):
        assert "10.96.0.8" in it.text("g2")
        await asyncio.sleep(60)
        assert "10.96.0.8" not in it.text("g2")
        assert "10.96.0.1" in it.text("g2")


async def test_first_lists_with_only_endpoints_are_distrusted() -> None:
    first = node()
    saved = await saved_by(first)
    first.storage.delete(SERVICES, "a-default", "web")
    it = EngineNode(first.storage, {})
    it.bridge = first.bridge
    before = it.text("g1")
    async with it.running(100.0):
        assert it.text("g1") == before
        assert it.controller.tenants["a"].sync_state == "distrusted"
        assert not it.report.readiness().is_ready
        await asyncio.sleep(HOLD_S)
        assert "10.96.0.1" not in it.text("g1")
    # With saved state its Services stay, too.
    it = EngineNode(first.storage, saved)
    it.bridge.add("g2", "a")
    async with it.running(100.0):
        assert "10.96.0.1" in it.text("g2")
        assert [relist.names for relist in it.controller.distrusted] == [frozenset({"web"})]
        it.storage.delete(ENDPOINT_SLICES, "a-default", "web-1")
        await asyncio.sleep(1)
        assert "10.96.0.1" not in it.text("g2")
        assert it.controller.distrusted == frozenset()


async def test_saved_state_has_the_synced_objects(tmp_path: Path) -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        saved = SavedTenants(tmp_path, it.snapshot, Counter(), wall=lambda: WALL, now=lambda: 0.0)
        saved.prepare()
        taken = it.controller.take_to_save()
        assert taken == {"a"}
        saved.changed(taken)
        await saved.keep({"a": 0.0})
        restored = await saved.load("a")
        assert restored is not None
        assert [each.metadata.name for each in restored.state.services] == ["web"]
        assert it.controller.take_to_save() == frozenset()


async def test_clock_set_back_before_restart_delays_nothing() -> None:
    it = node()
    known = it.bridge.add("g", "a")
    known.desired = known.installed = Ruleset(1 << 60, "f" * 64, ())
    async with it.running():
        await asyncio.sleep(3)
        assert "10.0.0.1:8080" in it.text("g")
        assert it.installed_ruleset("g").generation == (1 << 60) + 1
