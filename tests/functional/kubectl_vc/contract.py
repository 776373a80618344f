# SPDX-License-Identifier: Apache-2.0
"""What `kubectl_vc.port.ApiServer` promises: of the fake, and of a real kubectl at a real API server."""

import time
from collections.abc import Callable

import pytest

from kubectl_vc.core.command import Command
from kubectl_vc.core.faults import FaultReason, RequestError
from kubectl_vc.core.manifests import annotations_patch, version_patch, virtual_cluster, volumes_patch
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, Object, TenantView, text
from kubectl_vc.port import EVERY_NAMESPACE, ApiServer

NAMESPACE = "default"
# Of the real one: a watch that shows nothing for so long has failed.
_WATCH_S = 60.0


def check(api: ApiServer) -> None:
    """All of it, with a VirtualCluster that does not exist before and after."""
    assert _fault(lambda: api.get(VIRTUAL_CLUSTERS, "contract", NAMESPACE)) is FaultReason.NOT_FOUND
    first = _created(api)
    _is_listed(api)
    _is_changed_only_as_it_was_read(api, first)
    _is_deleted_by_its_uid(api, first)
    second = _created(api)
    stale = annotations_patch(first, {"vcnode.io/wake-requested-at": "x"})
    assert _fault(lambda: _patched(api, stale)) is FaultReason.CONFLICT
    assert _fault(lambda: api.delete(first)) is FaultReason.CONFLICT
    api.delete(second)


def _created(api: ApiServer) -> TenantView:
    manifest = virtual_cluster(Command("create", name="contract"), "v1.34")
    made = TenantView(api.create(manifest, NAMESPACE))
    assert (made.path, made.desired_version, bool(made.uid)) == ("default/contract", "v1.34", True)
    assert _fault(lambda: api.create(manifest, NAMESPACE)) is FaultReason.ALREADY_EXISTS
    return made


def _is_listed(api: ApiServer) -> None:
    probe: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "contract-"}}
    name = text(api.create(probe, NAMESPACE, dry_run=True), "metadata", "name")
    assert name.startswith("contract-")
    assert _fault(lambda: api.get("configmaps", name, NAMESPACE)) is FaultReason.NOT_FOUND
    for namespace in (NAMESPACE, EVERY_NAMESPACE):
        assert "contract" in _names(api.list_objects(VIRTUAL_CLUSTERS, namespace))
    assert _names(api.list_objects(VIRTUAL_CLUSTERS, NAMESPACE, names=["contract"])) == ["contract"]
    chosen = api.list_objects(VIRTUAL_CLUSTERS, NAMESPACE, selector={"metadata.name": "contract"})
    assert _names(chosen) == ["contract"]
    other = api.list_objects(VIRTUAL_CLUSTERS, NAMESPACE, selector={"metadata.name": "other"})
    assert other == []
    assert "contract" in api.printed(VIRTUAL_CLUSTERS, NAMESPACE, ["contract"], "name")


def _is_changed_only_as_it_was_read(api: ApiServer, first: TenantView) -> None:
    annotated = _patched(api, annotations_patch(first, {"vcnode.io/wake-requested-at": "x"}))
    assert text(annotated.value, "metadata", "annotations", "vcnode.io/wake-requested-at") == "x"
    assert _fault(lambda: _patched(api, version_patch(first, "v1.35"))) is FaultReason.CONFLICT
    assert _patched(api, version_patch(annotated, "v1.35")).desired_version == "v1.35"
    assert text(_patched(api, volumes_patch(first)).value, "spec", "volumes") == "Retain"
    operations = [
        {"op": "test", "path": "/spec/volumes", "value": "Delete"},
        {"op": "replace", "path": "/spec/volumes", "value": "Delete"},
    ]
    refused = _fault(
        lambda: api.patch(VIRTUAL_CLUSTERS, "contract", NAMESPACE, operations, is_json_patch=True)
    )
    assert refused is not None
    operations[0]["value"] = "Retain"
    changed = api.patch(VIRTUAL_CLUSTERS, "contract", NAMESPACE, operations, is_json_patch=True)
    assert text(changed, "spec", "volumes") == "Delete"


def _is_deleted_by_its_uid(api: ApiServer, view: TenantView) -> None:
    """A watch begins with the state, and ends with the object."""
    types = []
    for event in api.watch(VIRTUAL_CLUSTERS, view, time.monotonic() + _WATCH_S):
        types.append(event.type)
        assert TenantView(event.value).path == view.path
        if len(types) == 1:
            api.delete(view)
    assert (types[0], types[-1]) == ("ADDED", "DELETED")
    assert _fault(lambda: api.get(VIRTUAL_CLUSTERS, "contract", NAMESPACE)) is FaultReason.NOT_FOUND
    # What is not there any more is deleted, to who begins to watch late.
    late = [each.type for each in api.watch(VIRTUAL_CLUSTERS, view, time.monotonic() + _WATCH_S)]
    assert late == ["DELETED"]


def _patched(api: ApiServer, patch: object) -> TenantView:
    return TenantView(api.patch(VIRTUAL_CLUSTERS, "contract", NAMESPACE, patch))


def _names(values: list[Object]) -> list[str]:
    return [text(each, "metadata", "name") for each in values]


def _fault(call: Callable[[], object]) -> FaultReason:
    with pytest.raises(RequestError) as raised:
        call()
    return raised.value.fault.reason
