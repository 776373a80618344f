# SPDX-License-Identifier: Apache-2.0
"""One tenant from Kubernetes 1.33 to 1.34, back, forward again and confirmed, while a client works in it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.k8s import build
from tests.k8s.operator import load, releases, running_pods, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.releases import KubernetesImages
from tests.k8s.operator.running_pods import RunningPods
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.operator.tokens import IssuedToken
from tests.k8s.syncer.daemon import SyncerDaemon

pytestmark = pytest.mark.timeout(400)

_OLD, _NEW = "from-1.33", "to-1.34"
_UPGRADED_S = 180.0
_NOT_BUILT = "NO UPGRADE FROM 1.33 IS TESTED: run python3 tests/k8s/build.py --older"


@pytest.fixture(scope="module")
def tenant(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon, figures: list[str]
) -> Iterator[OperatedTenant]:
    """Ready, with 1.33 and a Deployment."""
    if f"kube-apiserver{build.OLDER_SUFFIX}" not in ground.ring.binaries.paths:
        figures.append(_NOT_BUILT)
        pytest.skip(_NOT_BUILT)
    releases.import_kubernetes(ground.ring, releases.OLDER)
    for name, release in ((_OLD, releases.OLDER), (_NEW, releases.CURRENT)):
        tenants.apply(ground, tenants.cluster_version(name, release))
    made = tenants.create(ground, operator, "violet", clusterVersionName=_OLD)
    try:
        made.wait_condition(tenants.READY)
        running_pods.start(made)
        yield made
    finally:
        made.delete()


def test_upgrade_back_and_forward_under_load(tenant: OperatedTenant, figures: list[str]) -> None:
    """No request fails, no token dies, no pod of the tenant starts again; then the upgrade is confirmed."""
    token, before = IssuedToken.issue(tenant), RunningPods.of(tenant)
    assert before.uids
    for name, release, minor in (
        (_NEW, releases.CURRENT, "33"),
        (_OLD, releases.OLDER, ""),
        (_NEW, releases.CURRENT, "33"),
    ):
        began = time.monotonic()
        with load.running(tenant.ground.ring.binaries["client-load"], tenant.kubectl()) as report:
            tenant.change(clusterVersionName=name)
            _wait_version(tenant, name, release, minor)
            assert token.is_valid()
        report.check()
        figures.append(f"{tenant.name} to {release.version} in {time.monotonic() - began:.1f} s: {report}")
    with load.running(tenant.ground.ring.binaries["client-load"], tenant.kubectl()) as report:
        tenant.annotate(confirm_upgrade=_NEW)
        tenant.wait("the emulation ends", lambda: _is_confirmed(tenant), timeout_s=_UPGRADED_S)
    report.check()
    figures.append(f"{tenant.name}: upgrade confirmed: {report}")
    assert token.is_valid()
    assert RunningPods.of(tenant) == before


def test_confirmed_upgrade_is_not_taken_back(tenant: OperatedTenant) -> None:
    """Condition UpToDate has the field, and the tenant runs on as it is."""
    assert _is_confirmed(tenant), "the upgrade before was not confirmed"
    tenant.change(clusterVersionName=_OLD)
    found = tenant.wait_condition("UpToDate", "False", reason="DowngradeRefused")
    assert "spec.clusterVersionName" in found["message"]
    assert tenant.api().get("/version")["gitVersion"] == releases.CURRENT.version
    tenant.change(clusterVersionName=_NEW)
    tenant.wait_condition("UpToDate")


def _wait_version(tenant: OperatedTenant, name: str, release: KubernetesImages, minor: str) -> None:
    """Until every component runs the version, and the API server says so itself, and emulates `minor`."""

    def is_there() -> bool:
        status = tenant.get()["status"]
        return bool(status["clusterVersion"] == name and status["phase"] == "Running")

    tenant.wait(f"status has ClusterVersion {name}", is_there, timeout_s=_UPGRADED_S)
    tenant.wait_condition("UpToDate")
    assert tenant.get()["status"]["kubernetesVersion"] == release.version.removeprefix("v")
    # One of before that is ending answers now and then, until no request is led to it: both from one answer.
    tenant.wait(
        f"an API server of {release.version} answers, which emulates {minor or 'none'}",
        lambda: _served(tenant) == (release.version, minor),
    )


def _served(tenant: OperatedTenant) -> tuple[str, str]:
    """The version of the API server that answers, and the minor that it emulates: empty for its own."""
    version = tenant.api().get("/version")
    emulated = str(version.get("emulationMinor", ""))
    return version["gitVersion"], "" if emulated == version["minor"] else emulated


def _is_confirmed(tenant: OperatedTenant) -> bool:
    status = tenant.get()["status"]
    return (
        status.get("upgrade", {}).get("confirmed") is True
        and tenant.condition("UpToDate").get("status") == "True"
        and _served(tenant) == (releases.CURRENT.version, "")
    )
