# SPDX-License-Identifier: Apache-2.0
"""Stock CoreDNS for networks of tenants, and the tenant's own controller that writes EndpointSlices.

Each server runs in the control planes' namespace, where its tenant's apiserver is, with an address
of its own that pods reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.dns_servers import ServerAddress, start_controller, start_server
from tests.k8s.ring.processes import run
from tests.k8s.ring.tenants import RingTenant


@dataclass(frozen=True, slots=True)
class NetworkDns:
    """The DNS server of one network."""

    tenant: RingTenant
    network: str
    address: str


@contextmanager
def serving_names(ring: Ring, servers: tuple[NetworkDns, ...]) -> Iterator[None]:
    """These servers, and in each of their tenants' planes the endpointslice controller."""
    control, binaries, directory = ring.control, ring.binaries, ring.directory
    with ExitStack() as stack:
        for tenant in {each.tenant.key: each.tenant for each in servers}.values():
            controller = start_controller(tenant.key, control, binaries, tenant.apiserver, directory)
            stack.callback(controller.stop)
        for server in servers:
            where = ["ip", "-n", control.name, "addr"]
            run([*where, "add", f"{server.address}/24", "dev", "eth0"])
            stack.callback(run, [*where, "del", f"{server.address}/24", "dev", "eth0"])
            key, address = server.tenant.key, ServerAddress(control, server.address)
            daemon = start_server(key, server.network, address, binaries, server.tenant.apiserver, directory)
            stack.callback(daemon.stop)
        yield
