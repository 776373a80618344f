# SPDX-License-Identifier: Apache-2.0
"""VirtualClusters as control planes, or with the first problem of their specs."""

import ipaddress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.model.cluster_version import ClusterVersion, Release, SizeClass
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.release import release_of
from tenant_operator.model.resolve import MAX_KEY_CHARS, control_plane_of
from tenant_operator.model.virtual_cluster import Exposure, VirtualCluster

UID = "d64ea0c0-91f8-46f5-8643-c0cab32ab0cd"


class RangeSettings(msgspec.Struct, frozen=True):
    service_cidrs: tuple[str, ...] = ("10.96.0.0/16", "fd00:10:96::/112")
    pod_cidrs: tuple[str, ...] = ("10.244.0.0/16",)
    node_cidrs: tuple[str, ...] = ("192.168.1.0/24",)


def _release() -> Release:
    images = {"apiServer": "a", "controllerManager": "b", "etcd": "c"}
    spec = {"kubernetesVersion": "1.34.4", "images": images, "classes": {"small": {}, "big": {}}}
    found = release_of(msgspec.convert({"metadata": {"name": "v1"}, "spec": spec}, ClusterVersion))
    assert isinstance(found, Release)
    return found


RELEASE = _release()


def of(spec: dict[str, Any], meta: dict[str, str] | None = None, key: str = "") -> ControlPlane | SpecProblem:
    value = {
        "metadata": {"namespace": "ns", "name": "name", "uid": UID, **(meta or {})},
        "spec": {"clusterVersionName": "v1", **spec},
        "status": {"clusterNamespace": key},
    }
    return control_plane_of(msgspec.convert(value, VirtualCluster), RELEASE, RangeSettings())


@pytest.mark.parametrize("spec", [{}, {"serviceCidr": "", "clusterDomain": "", "class": ""}])
def test_least_control_plane(spec: dict[str, Any]) -> None:
    assert of(spec) == ControlPlane(
        key="ns-fd1b34-name",
        name="name",
        namespace="ns",
        uid=UID,
        release=RELEASE,
        size=SizeClass(),
        cluster_domain="cluster.local",
        service_cidrs=("10.32.0.0/24",),
        pki_days=365,
        exposure=Exposure(),
    )


def test_every_field_counts() -> None:
    spec = {
        "serviceCidr": "10.33.0.0/20,fd00:33::/112",
        "clusterDomain": "acme.example",
        "pkiExpireDays": 30,
        "class": "big",
        "exposure": {"type": "NodePort", "hostName": "acme.example"},
        "volumes": "Retain",
    }
    assert of(spec, key="kept-key") == ControlPlane(
        key="kept-key",
        name="name",
        namespace="ns",
        uid=UID,
        release=RELEASE,
        size=RELEASE.classes["big"],
        cluster_domain="acme.example",
        service_cidrs=("10.33.0.0/20", "fd00:33::/112"),
        pki_days=30,
        exposure=Exposure("NodePort", "acme.example"),
        volumes="Retain",
    )


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"class": "huge"}, "spec.class", "ClassUnknown"),
        ({"clusterDomain": "Acme"}, "spec.clusterDomain", "DomainInvalid"),
        ({"clusterDomain": "a..b"}, "spec.clusterDomain", "DomainInvalid"),
        ({"pkiExpireDays": 0}, "spec.pkiExpireDays", "DaysInvalid"),
        ({"pkiExpireDays": 3651}, "spec.pkiExpireDays", "DaysInvalid"),
        ({"exposure": {"type": "Ingress"}}, "spec.exposure.type", "ExposureInvalid"),
        ({"exposure": {"hostName": "a:6443"}}, "spec.exposure.hostName", "ExposureInvalid"),
        ({"volumes": "Keep"}, "spec.volumes", "VolumesInvalid"),
        ({"serviceCidr": "10.32.0.0"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.32.0.1/24"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "a/24"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.32.0.0/24,"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.0.0.0/11"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.32.0.0/29"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "fd01::/107"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.32.0.0/24,10.33.0.0/24"}, "spec.serviceCidr", "ServiceRangeInvalid"),
        ({"serviceCidr": "10.96.0.0/24"}, "spec.serviceCidr", "ServiceRangeOverlaps"),
        ({"serviceCidr": "10.240.0.0/12"}, "spec.serviceCidr", "ServiceRangeOverlaps"),
        ({"serviceCidr": "192.168.1.128/28"}, "spec.serviceCidr", "ServiceRangeOverlaps"),
        ({"serviceCidr": "10.32.0.0/24,fd00:10:96::/112"}, "spec.serviceCidr", "ServiceRangeOverlaps"),
    ],
)
def test_problems(spec: dict[str, Any], field: str, reason: str) -> None:
    found = of(spec)
    assert isinstance(found, SpecProblem), found
    assert (found.field, found.reason, found.of) == (field, reason, "")
    assert found.text == f"{field}: {found.message}; {found.remedy}"


@pytest.mark.parametrize(
    ("meta", "key", "reason"),
    [
        ({"namespace": "n" * 24, "name": "a" * 24}, "", ""),
        ({"namespace": "n" * 24, "name": "a" * 25}, "", "NameTooLong"),
        ({"namespace": "n" * 63, "name": "a"}, "", "NameRefused"),
        ({"name": "a.b"}, "", "NameRefused"),
        # One that is there already keeps its key.
        ({"name": "a.b"}, "k" * 63, ""),
        ({}, "kube-system", "NameRefused"),
        ({}, "k" * 64, "NameRefused"),
    ],
)
def test_names_and_keys(meta: dict[str, str], key: str, reason: str) -> None:
    found = of({}, meta, key)
    if reason:
        assert isinstance(found, SpecProblem)
        assert (found.field, found.reason) == ("metadata.name", reason)
    else:
        assert isinstance(found, ControlPlane)


_TEXT = st.text(max_size=70) | st.from_regex(r"\A[a-z0-9.-]{1,70}\Z")


@given(
    spec=st.fixed_dictionaries(
        {},
        optional={
            "serviceCidr": _TEXT | st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}\Z"),
            "clusterDomain": _TEXT,
            "pkiExpireDays": st.integers(-(2**63), 2**63 - 1),
            "class": _TEXT | st.just("big"),
            "volumes": _TEXT,
            "exposure": st.fixed_dictionaries({}, optional={"type": _TEXT, "hostName": _TEXT}),
        },
    ),
    meta=st.fixed_dictionaries({}, optional={"namespace": _TEXT, "name": _TEXT, "uid": _TEXT}),
    key=st.just("") | _TEXT,
)
def test_what_is_made_is_sound(spec: dict[str, Any], meta: dict[str, str], key: str) -> None:
    found = of(spec, meta, key)
    if isinstance(found, SpecProblem):
        assert found.field.startswith(("spec.", "metadata."))
        assert found.message
        assert found.remedy
        return
    assert found.key == key or len(found.key) <= MAX_KEY_CHARS
    assert found.size in RELEASE.classes.values()
    assert 1 <= found.pki_days <= 3650
    taken = [ipaddress.ip_network(each) for each in sum(msgspec.structs.astuple(RangeSettings()), ())]
    for address, cidr in zip(found.first_service_addresses, found.service_cidrs, strict=True):
        network = ipaddress.ip_network(cidr)
        assert ipaddress.ip_address(address) in network
        assert not [each for each in taken if each.version == network.version and each.overlaps(network)]


def cluster(namespace: str, name: str, uid: str, created: str = "", key: str = "") -> VirtualCluster:
    metadata = {"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "status": {"clusterNamespace": key}}, VirtualCluster)


OLD, NEW = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"
COLLIDING = ("u0", "u269")
SHORT, LONG = "ns-fd1b34-name", "ns-fd1b34-name-x"


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        (cluster("ns", "name-x", UID, NEW), False),
        (cluster("ns", "other", "u2", OLD), False),
        (cluster("x", "y", "u2", NEW, SHORT), True),
        (cluster("x", "y", "u2", NEW, LONG), True),
        (cluster("x", "y", "u2", OLD, "ns-fd1b34"), True),
        (cluster("x", "y", "u2", OLD, "ns-fd1b34-nam"), False),
        (cluster("x", "y", "u2", OLD, "ns-fd1b34-names"), False),
    ],
)
def test_a_key_that_overlaps_one_in_use_is_refused(other: VirtualCluster, is_refused: bool) -> None:
    """The condition names no other tenant."""
    found = control_plane_of(cluster("ns", "name", UID, OLD), RELEASE, RangeSettings(), [other])
    assert isinstance(found, SpecProblem) is is_refused
    if isinstance(found, SpecProblem):
        assert (found.field, found.reason) == ("metadata.name", "ClusterKeyTaken")
        assert "x/y" not in found.text
        assert "ns-fd1b34-name-x" not in found.text


def test_of_two_new_ones_the_elder_is_served() -> None:
    """Keys have 24 bits of the UID's hash: these two UIDs, found by trying, agree in them."""
    elder = cluster("ns", "name", COLLIDING[0], OLD)
    younger = cluster("ns", "name-x", COLLIDING[1], NEW)
    both = [elder, younger]
    assert isinstance(control_plane_of(elder, RELEASE, RangeSettings(), both), ControlPlane)
    assert isinstance(control_plane_of(younger, RELEASE, RangeSettings(), both), SpecProblem)


def test_one_that_is_served_stays_so() -> None:
    served = cluster("ns", "name", UID, NEW, SHORT)
    other = cluster("x", "y", "u2", OLD, "ns-fd1b34")
    assert isinstance(control_plane_of(served, RELEASE, RangeSettings(), [other]), ControlPlane)
