# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc delete`, with whole output."""

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, Object
from kubectl_vc.delete import delete
from tests.unit.kubectl_vc.invocations import Ended, call, running

BEGUN = "virtualcluster.tenancy.x-k8s.io/acme is being deleted\n"


@pytest.fixture
def api() -> FakeKubectl:
    value = running()
    value["metadata"]["finalizers"] = ["vcnode.io/vc-operator"]
    return FakeKubectl({VIRTUAL_CLUSTERS: [value]})


def gone(value: Object) -> None:
    value.clear()


@pytest.mark.parametrize(
    ("flags", "consequence"), [("", "its volumes are deleted"), ("--keep-volumes", "its volumes stay")]
)
def test_the_name_confirms_it(api: FakeKubectl, flags: str, consequence: str) -> None:
    question = (
        f"VirtualCluster tenants/acme and all objects in it are deleted; {consequence}, its keys are"
        f" destroyed.\n"
        "Type its name, acme, to go on: "
    )
    refused = call(delete, f"delete acme -n tenants {flags}", api, typed="")
    assert refused == Ended(1, "", f"{question}not confirmed: nothing was changed\n")
    assert api.requests == []
    done = call(delete, f"delete acme -n tenants --no-wait {flags}", api, typed="acme\n")
    assert done == Ended(0, BEGUN, question)
    keep = {"metadata": {"uid": "uid-of-acme"}, "spec": {"volumes": "Retain"}}
    patches = [("patch", VIRTUAL_CLUSTERS, "tenants", "acme", keep)] if flags else []
    assert api.requests == [*patches, ("delete", "tenants/acme", "uid-of-acme")]


def test_progress_names_what_is_left(api: FakeKubectl) -> None:
    def waits_for_a_claim(value: Object) -> None:
        value["status"]["message"] = "PersistentVolumeClaim tenants-acme/data-etcd-0 is left"

    api.changes = [waits_for_a_claim, gone]
    assert call(delete, "delete acme -n tenants --yes", api) == Ended(
        0,
        BEGUN,
        "waiting for VirtualCluster tenants/acme to be gone, at most 0:10:00\n"
        "12:00:00  its finalizers are left: vcnode.io/vc-operator\n"
        "12:00:00  PersistentVolumeClaim tenants-acme/data-etcd-0 is left\n"
        "VirtualCluster tenants/acme: done after 0 s\n",
    )


def test_what_is_being_deleted_needs_no_confirmation(api: FakeKubectl) -> None:
    api.objects[VIRTUAL_CLUSTERS, "tenants", "acme"]["metadata"]["deletionTimestamp"] = "2026-11-30T11:00:00Z"
    api.changes = [None]
    ended = call(delete, "delete acme -n tenants --timeout 5", api)
    assert ended.code == 1
    assert ended.err.splitlines()[-2] == (
        "VirtualCluster tenants/acme is not done after 5 s: its finalizers are left: vcnode.io/vc-operator"
    )
