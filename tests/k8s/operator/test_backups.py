# SPDX-License-Identifier: Apache-2.0
"""A tenant is saved, changed, and goes back, though the operator is killed; another begins with it."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Iterator

import pytest

from tenancy import keys
from tests.k8s.operator import object_store, releases, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.provisioned import HOME
from tests.k8s.syncer.shops import object_of

pytestmark = pytest.mark.timeout(400)

_RELEASE = "v1.34-saved"
_BACKUP = "nightly"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_SECRETS = "/api/v1/namespaces/default/secrets"
_BEFORE = {"kept": "before", "changed": "before", "deleted": "before"}


@pytest.fixture(scope="module")
def tenant(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon, figures: list[str]
) -> Iterator[OperatedTenant]:
    """Ready, with ConfigMaps, a Secret, and a backup of them."""
    object_store.start(ground)
    version = tenants.cluster_version(_RELEASE, releases.CURRENT)
    version["spec"]["images"]["backup"] = object_store.IMAGE
    tenants.apply(ground, version)
    made = tenants.create(ground, operator, "saved", clusterVersionName=_RELEASE)
    try:
        made.wait_condition(tenants.READY)
        api = made.api()
        for name, value in _BEFORE.items():
            api.create(_CONFIG_MAPS, object_of("v1", "ConfigMap", name, data={"at": value}))
        api.create(_SECRETS, object_of("v1", "Secret", "login", stringData={"password": "open sesame"}))
        began = time.monotonic()
        made.annotate(backup_requested=_BACKUP)
        made.wait(f"backup {_BACKUP} is complete", lambda: _entry(made).get("phase") == "Completed")
        figures.append(f"{made.name}: backup in {time.monotonic() - began:.1f} s")
        yield made
    finally:
        made.delete()


def test_backup_has_its_revision_and_a_place_of_its_own(tenant: OperatedTenant) -> None:
    """No VirtualCluster of the same name that is made later has the same place."""
    entry = _entry(tenant)
    assert entry["location"] == f"{HOME}/{_uid(tenant)}/{_BACKUP}"
    assert entry["revision"] > 1
    assert entry["bytes"] > 10_000


def test_tenant_goes_back_and_deletions_wait(tenant: OperatedTenant, figures: list[str]) -> None:
    api = tenant.api()
    api.delete(f"{_CONFIG_MAPS}/deleted")
    api.patch(f"{_CONFIG_MAPS}/changed", {"data": {"at": "after"}})
    later = api.create(_CONFIG_MAPS, object_of("v1", "ConfigMap", "later", data={"at": "after"}))
    version = later["metadata"]["resourceVersion"]
    tenant.wait("vc-syncer has made ConfigMap later", lambda: _has_copy(tenant, "later"))

    began = time.monotonic()
    tenant.annotate(restore_requested=_BACKUP)
    tenant.wait("its pods have ended", lambda: _restore(tenant).get("phase") in ("Restoring", "Starting"))
    # Before the API server ended.
    token = tenant.get()["metadata"]["annotations"][keys.HOLD_DELETIONS]
    tenant.operator.stop(signal.SIGKILL)
    tenant.operator.start()
    tenant.wait("the restore is complete", lambda: _restore(tenant).get("phase") == "Completed")
    tenant.wait_condition(tenants.READY)
    figures.append(f"{tenant.name}: restore in {time.monotonic() - began:.1f} s, the operator killed once")

    api = tenant.api()
    assert _values(api) == _BEFORE
    assert _password(api) == "open sesame"
    _check_expired(api, version)
    assert int(api.get(_CONFIG_MAPS)["metadata"]["resourceVersion"]) > 1_000_000_000
    assert f"{keys.RELEASE_HELD}={token}" in _restore(tenant)["message"]
    tenant.wait("vc-syncer holds deletions", lambda: token in _held(tenant))
    assert _has_copy(tenant, "later")

    tenant.annotate(release_held=token)
    tenant.wait("the copy is deleted", lambda: not _has_copy(tenant, "later"))
    tenant.wait("vc-syncer has made what is back", lambda: _has_copy(tenant, "deleted"))


def test_new_tenant_begins_with_the_backup(tenant: OperatedTenant, figures: list[str]) -> None:
    """Of another name: its certificates, keys and tokens are its own."""
    source = {"backup": _BACKUP, "uid": _uid(tenant)}
    copy = tenants.create(
        tenant.ground, tenant.operator, "copied", clusterVersionName=_RELEASE, restoreFrom=source
    )
    try:
        copy.wait_condition(tenants.READY)
        figures.append(f"{copy.name}: apply to Ready from a backup {copy.elapsed_s:.1f} s")
        api = copy.api()
        assert _values(api) == _BEFORE
        assert _password(api) == "open sesame"
        assert keys.HOLD_DELETIONS not in copy.get()["metadata"].get("annotations", {})
        assert copy.get()["status"].get("backups", []) == []
    finally:
        copy.delete()


def test_backup_of_a_uid_that_has_none_is_refused(tenant: OperatedTenant) -> None:
    """As of a VirtualCluster that was deleted. The new one does not begin empty in its place."""
    source = {"backup": _BACKUP, "uid": "00000000-0000-4000-8000-000000000000"}
    other = tenants.create(
        tenant.ground, tenant.operator, "refused", clusterVersionName=_RELEASE, restoreFrom=source
    )
    try:
        found = other.wait_condition(tenants.READY, "False", reason="RestoreRefused")
        assert "has the keys of its Secrets" in found["message"]
        assert other.root_kubectl("get", "deployments,statefulsets", "-o", "name").text == ""
    finally:
        other.delete()


def _uid(tenant: OperatedTenant) -> str:
    return str(tenant.get()["metadata"]["uid"])


def _entry(tenant: OperatedTenant) -> JsonObject:
    found = tenant.get().get("status", {}).get("backups", [])
    return next((each for each in found if each["name"] == _BACKUP), {})


def _restore(tenant: OperatedTenant) -> JsonObject:
    found: JsonObject = tenant.get().get("status", {}).get("restore", {})
    return found


def _held(tenant: OperatedTenant) -> str:
    """What vc-syncer's condition has."""
    found = tenant.get()["status"]["conditions"]
    return next((each["message"] for each in found if each["reason"] == "DeletionsHeld"), "")


def _values(api: KubernetesApi) -> dict[str, str]:
    """Of the ConfigMaps that are not the cluster's own."""
    listed = api.get(_CONFIG_MAPS)["items"]
    return {each["metadata"]["name"]: each["data"]["at"] for each in listed if "at" in each.get("data", {})}


def _password(api: KubernetesApi) -> str:
    return base64.b64decode(api.get(f"{_SECRETS}/login")["data"]["password"]).decode()


def _check_expired(api: KubernetesApi, version: str) -> None:
    """A watch from before the restore has to list again."""
    reply = api.endpoint.request("GET", f"{_CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion={version}")
    event = json.loads(reply.body.splitlines()[0])
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def _has_copy(tenant: OperatedTenant, name: str) -> bool:
    """Whether the super cluster has the ConfigMap."""
    path = f"/api/v1/namespaces/{tenant.super_namespace('default')}/configmaps/{name}"
    return tenant.ground.api.endpoint.request("GET", path).status == 200
