# SPDX-License-Identifier: Apache-2.0
"""The fence, asked what it does: which connections it lets through, as a policy engine would decide."""

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object
from tenant_operator.model.virtual_cluster import Exposure
from tenant_operator.provisioners import native
from tests.unit.tenant_operator.control_planes import CONTROL_PLANE, INPUTS, control_plane

OWN, OTHER = CONTROL_PLANE.key, "tenants-9c0ffe-evil"


class Party(NamedTuple):
    """One side of a connection: a pod, or an address outside of all pods."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    address: str = "10.244.1.7"


def pod(namespace: str, component: str = "", **labels: str) -> Party:
    found = {names.COMPONENT: component} if component else {}
    return Party(namespace, tuple((found | labels).items()))


API_SERVER, ETCD = pod(OWN, "apiserver"), pod(OWN, "etcd")
CONTROLLER_MANAGER = pod(OWN, "controller-manager")
OWN_POD = Party(f"{OWN}-default", ((keys.CLUSTER, OWN), ("app", "webhook")))
OTHERS_POD = Party(f"{OTHER}-default", ((keys.CLUSTER, OTHER),))
DNS = Party("kube-system", (("k8s-app", "kube-dns"),))
NODE = Party(address="192.0.2.11")
METADATA = Party(address="169.254.169.254")
INTERNET = Party(address="203.0.113.9")


def selects(selector: Object, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def is_peer(peer: Object, end: Party, own_namespace: str) -> bool:
    if "ipBlock" in peer:
        block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        return not end.namespace and ipaddress.ip_address(end.address) in block
    if not end.namespace:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": end.namespace}):
            return False
    elif end.namespace != own_namespace:
        return False
    return selects(peer.get("podSelector", {}), dict(end.labels))


def admits(policies: Sequence[Object], direction: str, own: Party, other: Party, port: int) -> bool:
    """Whether one side's policies let a connection through. A pod that none selects is open."""
    rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    selecting = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == own.namespace
        and direction in each["spec"]["policyTypes"]
        and selects(each["spec"]["podSelector"], dict(own.labels))
    ]
    return not selecting or any(
        (peers not in rule or any(is_peer(peer, other, own.namespace) for peer in rule[peers]))
        and ("ports" not in rule or any(each["port"] == port for each in rule["ports"]))
        for spec in selecting
        for rule in spec[rules]
    )


def policies_of(one: ControlPlane, inputs: ManifestInputs = INPUTS) -> list[Object]:
    manifests = [each for group in native.groups(one, inputs) for each in group.manifests]
    return [each for each in manifests if each["kind"] == "NetworkPolicy"]


def passes(source: Party, target: Party, port: int, exposure: str = "ClusterIP") -> bool:
    """Whether a connection gets through the fences of two tenants."""
    own = control_plane(exposure=Exposure(type=exposure))
    policies = [*policies_of(own), *policies_of(control_plane(key=OTHER, uid="another"))]
    return admits(policies, "Egress", source, target, port) and admits(
        policies, "Ingress", target, source, port
    )


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (API_SERVER, ETCD, 2379),
        (API_SERVER, DNS, 53),
        (API_SERVER, OWN_POD, 8443),
        (API_SERVER, NODE, 10550),
        (ETCD, ETCD, 2380),
        (ETCD, DNS, 53),
        (CONTROLLER_MANAGER, API_SERVER, 6443),
        (OWN_POD, API_SERVER, 6443),
        (NODE, API_SERVER, 6443),
        (pod("vcnode-system"), API_SERVER, 6443),
        (pod("vcnode-system"), ETCD, 2379),
    ],
)
def test_what_a_control_plane_needs_passes(source: Party, target: Party, port: int) -> None:
    assert passes(source, target, port)


def test_a_backup_reaches_the_store() -> None:
    """The job's own rules of egress are with the job."""
    assert admits(policies_of(control_plane()), "Ingress", ETCD, pod(OWN, "backup"), 2379)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        # What a tenant makes its own API server dial.
        (API_SERVER, METADATA, 80),
        (API_SERVER, NODE, 6443),
        (API_SERVER, NODE, 10250),
        (API_SERVER, INTERNET, 443),
        (API_SERVER, pod("kube-system", "", app="metrics"), 443),
        (API_SERVER, pod("vcnode-system"), 443),
        (API_SERVER, OTHERS_POD, 8443),
        (API_SERVER, pod(OTHER, "apiserver"), 6443),
        (API_SERVER, pod(OTHER, "etcd"), 2379),
        (API_SERVER, CONTROLLER_MANAGER, 10257),
        (API_SERVER, ETCD, 2380),
        (API_SERVER, ETCD, 2381),
        (API_SERVER, API_SERVER, 6443),
        # What its pods, or another's, dial.
        (OWN_POD, ETCD, 2379),
        (OWN_POD, CONTROLLER_MANAGER, 10257),
        (OWN_POD, API_SERVER, 6444),
        (OTHERS_POD, API_SERVER, 6443),
        (OTHERS_POD, ETCD, 2379),
        (NODE, ETCD, 2379),
        (INTERNET, API_SERVER, 6443),
        (CONTROLLER_MANAGER, ETCD, 2379),
        (CONTROLLER_MANAGER, INTERNET, 443),
        (ETCD, INTERNET, 443),
        (ETCD, pod(OTHER, "etcd"), 2380),
        (pod(OTHER, "backup"), ETCD, 2379),
        # A pod that no component of the control plane has.
        (pod(OWN), API_SERVER, 6443),
        (pod(OWN), METADATA, 80),
        (OWN_POD, pod(OWN), 80),
    ],
)
def test_all_else_is_refused(source: Party, target: Party, port: int) -> None:
    assert not passes(source, target, port)


@pytest.mark.parametrize(
    ("exposure", "passing"), [("ClusterIP", False), ("NodePort", True), ("LoadBalancer", True)]
)
def test_clients_from_anywhere_need_an_exposure(exposure: str, passing: bool) -> None:
    assert passes(INTERNET, API_SERVER, 6443, exposure) is passing
    assert not passes(INTERNET, API_SERVER, 6444, exposure)


def test_without_node_cidrs_no_node_is_dialled() -> None:
    """An empty list of peers would mean all."""
    policies = policies_of(control_plane(), ManifestInputs())
    rules = [rule for each in policies for rule in each["spec"]["egress"]]
    assert rules
    assert all(rule["to"] for rule in rules)
    assert not any(port["port"] == 10550 for rule in rules for port in rule.get("ports", ()))
