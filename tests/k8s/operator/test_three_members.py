# SPDX-License-Identifier: Apache-2.0
"""A tenant whose etcd has three members, on two nodes: one loses its volume, then all start again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.k8s.operator import load, neighbours, releases, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.load import LoadReport
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.kubectl import KubectlResult
from tests.k8s.syncer.daemon import SyncerDaemon

pytestmark = pytest.mark.timeout(300)

_RELEASE = "three-members"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_AVAILABLE = "ControlPlaneAvailable"
_ETCD_CA = "etcd-ca"
_SHOWN_S = 10.0
_BACK_S = 90.0
# Three pods start one after the other, and API servers twice.
_ROTATED_S = 200.0
_FILES = "/etc/kubernetes/files"
_WORKERS, _LEADERS = 3, 3
_LOST = "etcdserver: request timed out"
_MISSING = r'configmaps "client-load-\d+-\d+" not found'
# The client reads and deletes what it creates.
_REQUESTS_OF_ONE = 2


@pytest.fixture(scope="module")
def tenant(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon
) -> Iterator[OperatedTenant]:
    """Ready, with all members."""
    store = {**tenants.TINY_STORE, "replicas": 3}
    version = tenants.cluster_version(
        _RELEASE,
        releases.CURRENT,
        defaultClass="three",
        classes={"three": {"apiServer": tenants.SMALL_API_SERVER, "etcd": store}},
    )
    tenants.apply(ground, version)
    made = tenants.create(ground, operator, "teal", clusterVersionName=_RELEASE)
    try:
        made.wait_condition(tenants.READY)
        _wait_complete(made)
        made.wait("it has accounts", lambda: made.api().get(_ACCOUNTS)["items"])
        yield made
    finally:
        made.delete()


def test_member_without_its_volume_joins_again(tenant: OperatedTenant, figures: list[str]) -> None:
    """By the runbook of datastores/README.md, while the others serve."""
    before, claim = _members(tenant), _claim(tenant, "etcd-2")
    with neighbours.asked(tenant) as times, neighbours.watched(tenant) as history:
        began = time.monotonic()
        _etcdctl(tenant, "member", "remove", before["etcd-2"])
        address = f"https://etcd-2.etcd.{tenant.key}.svc:2380"
        _etcdctl(tenant, "member", "add", "etcd-2", f"--peer-urls={address}")
        tenant.root_kubectl("delete", "persistentvolumeclaim", "data-etcd-2", "--wait=false").check()
        lost = time.monotonic()
        tenant.root_kubectl("delete", "pod", "etcd-2", "--grace-period=0", "--force").check()
        shown = tenant.wait_condition(_AVAILABLE, reason="ReplicasMissing", timeout_s=_SHOWN_S)
        shown_s = time.monotonic() - lost
        tenant.wait(
            "etcd-2 has a new volume", lambda: _claim(tenant, "etcd-2") not in ("", claim), timeout_s=_BACK_S
        )
        _wait_complete(tenant)
        joined_s = time.monotonic() - began
    times.check()
    assert shown["message"] == (
        f"etcd has 2 of 3 replicas ready, and serves; look at its pods in namespace {tenant.key}"
    )
    assert history.first(tenants.READY, "False") is None
    after = _members(tenant)
    assert after.keys() == before.keys() == {"etcd-0", "etcd-1", "etcd-2"}
    assert [name for name in before if before[name] != after[name]] == ["etcd-2"]
    figures.append(
        f"{tenant.name}, one of three members without its volume: shown after {shown_s:.1f} s, joined after "
        f"{joined_s:.1f} s: {times}"
    )


def test_members_start_again_for_their_authority(tenant: OperatedTenant, figures: list[str]) -> None:
    """One after the other, while a client works, which loses no more than what their leader had in hand."""
    before, former = {each["metadata"]["uid"] for each in _pods(tenant)}, _authority(tenant)["tls.crt"]
    began = time.monotonic()
    with load.running(
        tenant.ground.ring.binaries["client-load"], tenant.kubectl(), workers=_WORKERS
    ) as report:
        tenant.annotate(rotate_etcd_ca="one")
        tenant.wait("its authority is another one", lambda: _is_rotated(tenant, former), timeout_s=_ROTATED_S)
    figures.append(
        f"{tenant.name}: {_ETCD_CA} of three members in {time.monotonic() - began:.0f} s: {report}"
    )
    _check(report)
    _wait_complete(tenant)
    assert not before & {each["metadata"]["uid"] for each in _pods(tenant)}


def _check(report: LoadReport) -> None:
    """A write that has been passed on to a leader which ends is lost with it, and etcd answers seven seconds
    later that it timed out: at most one of each worker, with each leader. Then its object is not there."""
    lost = [each for each in report.failures if _LOST in each]
    missing = [each for each in report.failures if re.search(_MISSING, each)]
    assert len(lost) <= _WORKERS * _LEADERS, report.failures
    assert len(missing) <= _REQUESTS_OF_ONE * len(lost), report.failures
    assert len(lost) + len(missing) == report.failed, report.failures
    assert report.requests > 0
    assert report.tokens > 0


def _authority(tenant: OperatedTenant) -> dict[str, str]:
    """The Secret's values; while it rotates, those of the former authority or the next one are among them."""
    secret = tenant.ground.api.get(f"/api/v1/namespaces/{tenant.key}/secrets/{_ETCD_CA}")
    found: dict[str, str] = secret["data"]
    return found


def _is_rotated(tenant: OperatedTenant, former: str) -> bool:
    now = _authority(tenant)
    is_settled = now.keys() - {"chain.crt"} == {"tls.crt", "tls.key"} and now["tls.crt"] != former
    return is_settled and not tenant.get()["status"].get("rotations")


def _wait_complete(tenant: OperatedTenant) -> None:
    tenant.wait_condition(_AVAILABLE, reason="WorkloadsReady", timeout_s=_BACK_S)


def _pods(tenant: OperatedTenant) -> list[JsonObject]:
    path = f"/api/v1/namespaces/{tenant.key}/pods?labelSelector=app.kubernetes.io/component%3Detcd"
    found: list[JsonObject] = tenant.ground.api.get(path)["items"]
    return found


def _claim(tenant: OperatedTenant, member: str) -> str:
    """The UID of the claim of its volume; empty while there is none."""
    path = f"/api/v1/namespaces/{tenant.key}/persistentvolumeclaims/data-{member}"
    reply = tenant.ground.api.endpoint.request("GET", path)
    return str(reply.json()["metadata"]["uid"]) if reply.status == 200 else ""


def _members(tenant: OperatedTenant) -> dict[str, str]:
    """The ID of each member by its name, as etcdctl prints them."""
    lines = _etcdctl(tenant, "member", "list").text.splitlines()
    fields = [line.split(", ") for line in lines]
    return {name: identity for identity, _, name, *_ in fields}


def _etcdctl(tenant: OperatedTenant, *command: str) -> KubectlResult:
    """In a member that runs."""
    flags = [f"--cacert={_FILES}/authorities/etcd-ca.crt"]
    flags += [f"--{name}={_FILES}/etcd-server/tls.{end}" for name, end in (("cert", "crt"), ("key", "key"))]
    return tenant.root_kubectl(
        "exec", "etcd-0", "--", "etcdctl", "--endpoints=https://localhost:2379", *flags, *command
    ).check()
