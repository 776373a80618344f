# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies and the parts that they are written of."""

from collections.abc import Sequence

from tenancy import keys
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_DNS_PORT = 53


def policy(
    control_plane: ControlPlane,
    name: str,
    selector: Object,
    *,
    ingress: Sequence[Object] = (),
    egress: Sequence[Object] = (),
) -> Object:
    """Of the selected pods of the root namespace: what no rule admits is refused, both ways."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": pods.metadata(control_plane, name),
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(ingress),
            "egress": list(egress),
        },
    }


def component(name: str) -> Object:
    """A peer: the pods of a component of the same control plane."""
    return {"podSelector": pods.selector(name)}


def tenant_pods(control_plane: ControlPlane) -> Object:
    """A peer: the tenant's own pods in all its super namespaces. vc-syncer labels each, and no tenant can."""
    return {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {keys.CLUSTER: control_plane.key}},
    }


def namespace(name: str) -> Object:
    """A peer: all pods of a namespace."""
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: name}}}


def blocks(cidrs: Sequence[str]) -> list[Object]:
    """Peers by their addresses."""
    return [{"ipBlock": {"cidr": each}} for each in cidrs]


def from_peers(peers: Sequence[Object], *ports: int) -> Object:
    """A rule of ingress. An empty list of peers would admit everybody: such a rule must not be made."""
    return _rule("from", peers, ports)


def to_peers(peers: Sequence[Object], *ports: int) -> Object:
    """A rule of egress."""
    return _rule("to", peers, ports)


def _rule(direction: str, peers: Sequence[Object], ports: Sequence[int]) -> Object:
    found: Object = {direction: list(peers)}
    if ports:
        found["ports"] = [{"protocol": "TCP", "port": each} for each in ports]
    return found


def dns(inputs: ManifestInputs) -> Object:
    """A rule of egress: the super cluster's DNS servers."""
    servers = namespace(names.DNS_NAMESPACE) | {"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    return {
        "to": [servers, *blocks(inputs.dns_cidrs)],
        "ports": [{"protocol": each, "port": _DNS_PORT} for each in ("UDP", "TCP")],
    }
