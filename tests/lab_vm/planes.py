# SPDX-License-Identifier: Apache-2.0
"""Real control planes for guests: the super cluster's and two tenants', with etcd, in a namespace of
their own; and a namespace for each network's DNS server, which has a link to them and joins
the network's VPC later.

All programs are those of the k8s ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority
from tests.k8s.build import Binaries
from tests.k8s.ring.controlplane import Apiserver, start_apiserver, start_etcd
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.tenants import RingTenant
from tests.lab.namespaces import Lab, LabNamespace

SUPER_CIDR = "10.96.0.0/16"
# Of each tenant: their addresses may be the same.
TENANT_CIDR = "10.32.0.0/16"
TENANTS = ("vc-a", "vc-b")


@dataclass(frozen=True, slots=True)
class Planes:
    """The running control planes. `dns_namespaces` are of DNS servers, by tenant and network."""

    control: NetworkNamespace
    super_cluster: Apiserver
    tenants: Mapping[str, RingTenant]
    dns_namespaces: Mapping[tuple[str, str], LabNamespace]


def start_planes(
    lab: Lab, binaries: Binaries, directory: Path, networks: Sequence[tuple[str, str]], stack: ExitStack
) -> Planes:
    """Start them, and wait until they are ready. Raises `RingError`."""
    inside = lab.namespace("cp")
    addresses = {name: f"10.71.0.{number}" for number, name in enumerate(("super", *TENANTS), 1)}
    for address in addresses.values():
        inside.run("ip", "addr", "add", f"{address}/32", "dev", "lo")
    # Before the apiservers, which refuse to start without a default route.
    dns_namespaces = {}
    for number, (tenant, network) in enumerate(networks, 1):
        namespace = dns_namespaces[tenant, network] = lab.namespace(f"dns-{tenant}-{network}")
        lab.link(inside, namespace, [f"10.71.{number}.1/24"], [f"10.71.{number}.2/24"])
    control = NetworkNamespace(inside.name, addresses["super"])
    stack.callback(start_etcd(control, binaries, directory).stop)
    apiservers = {}
    for name, address in addresses.items():
        made = start_apiserver(
            name,
            control,
            address,
            binaries,
            directory,
            # All have the same subject, as tenants' have.
            authority=Authority.create("kubernetes"),
            service_cidrs=(SUPER_CIDR if name == "super" else TENANT_CIDR,),
        )
        stack.callback(made.daemon.stop)
        apiservers[name] = made
    for each in apiservers.values():
        each.wait_ready()
    tenants = {key: _tenant(key, apiservers[key], control, binaries) for key in TENANTS}
    return Planes(control, apiservers["super"], tenants, dns_namespaces)


def _tenant(key: str, apiserver: Apiserver, control: NetworkNamespace, binaries: Binaries) -> RingTenant:
    leaf = apiserver.authority.issue("nobody", usages=("client",))
    kubectl = Kubectl(control, binaries["kubectl"], apiserver.kubeconfig)
    return RingTenant(key, apiserver, kubectl, leaf, leaf)
