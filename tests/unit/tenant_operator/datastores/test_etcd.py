# SPDX-License-Identifier: Apache-2.0
"""An etcd of the tenant's own: when it may start empty, how many members it has, who is one."""

import pytest

from tenant_operator.datastores.etcd import etcd
from tenant_operator.model import names
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object
from tests.unit.tenant_operator.control_planes import control_plane, release_of


def object_of(kind: str, of: ControlPlane, inputs: ManifestInputs) -> Object:
    (found,) = (each for each in etcd(of, inputs).manifests if each["kind"] == kind)
    return found


@pytest.mark.parametrize(
    ("size", "has_started", "state"),
    [("2Gi", False, "new"), ("2Gi", True, "existing"), ("", False, "new"), ("", True, "new")],
)
def test_no_store_with_a_volume_starts_empty_twice(size: str, has_started: bool, state: str) -> None:
    config = object_of(
        "ConfigMap",
        control_plane(datastore=DatastoreSpec(size=size)),
        ManifestInputs(has_started_store=has_started),
    )
    assert config["data"]["initial-cluster-state"] == state


def test_the_state_restarts_no_member() -> None:
    """Members read it at their start."""
    before, after = (
        object_of("StatefulSet", control_plane(replicas=3), ManifestInputs(has_started_store=each))
        for each in (False, True)
    )
    assert before == after


@pytest.mark.parametrize(
    ("of_class", "made_with", "members"), [(1, 0, 1), (3, 0, 3), (3, 1, 1), (1, 3, 3), (3, 3, 3)]
)
def test_a_store_keeps_its_members(of_class: int, made_with: int, members: int) -> None:
    """Members taken away by their number take the majority with them."""
    found = control_plane(replicas=of_class)
    inputs = ManifestInputs(store_members=made_with)
    assert object_of("StatefulSet", found, inputs)["spec"]["replicas"] == members
    assert object_of("ConfigMap", found, inputs)["data"]["members"] == str(members)
    assert len(etcd(found, inputs).apiserver_flags["etcd-servers"].split(",")) == members


def test_members_know_each_other_by_name() -> None:
    stateful_set = object_of("StatefulSet", control_plane(replicas=3), ManifestInputs())
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    where = "etcd.tenants-70b001-acme.svc:2380"
    peers = ",".join(f"etcd-{each}=https://etcd-{each}.{where}" for each in range(3))
    assert f"--initial-cluster={peers}" in container["args"]
    assert "--initial-advertise-peer-urls=https://$(POD_NAME)." + where in container["args"]
    assert not any("POD_IP" in each for each in container["args"])


def test_trust_is_in_its_own_authority_alone() -> None:
    stateful_set = object_of("StatefulSet", control_plane(), ManifestInputs())
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    trusted = {each.partition("=")[2] for each in container["args"] if "trusted-ca-file" in each}
    assert trusted == {f"/etc/kubernetes/files/authorities/{names.ETCD_BUNDLE}"}
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(container["args"])


@pytest.mark.parametrize("volumes", ["Delete", "Retain"])
def test_volumes_stay_without_their_stateful_set(volumes: str) -> None:
    stateful_set = object_of("StatefulSet", control_plane(volumes=volumes), ManifestInputs())
    assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


@pytest.mark.parametrize(("storage_class", "expected"), [(None, "unset"), ("", ""), ("fast", "fast")])
def test_the_storage_class_is_the_release_s(storage_class: str | None, expected: str) -> None:
    spec = DatastoreSpec(storage_class_name=storage_class, size="5Gi")
    stateful_set = object_of("StatefulSet", control_plane(datastore=spec), ManifestInputs())
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    assert claim["spec"].get("storageClassName", "unset") == expected
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}


def test_an_upgrade_of_etcd_has_its_own_release() -> None:
    older = release_of((1, 33, 13), images=control_plane().release.images)
    found = control_plane(etcd_release=older)
    assert etcd(found, ManifestInputs()).problem == ""
