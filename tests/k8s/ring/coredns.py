# SPDX-License-Identifier: Apache-2.0
"""Stock CoreDNS for networks of tenants, and the tenant's own controller that writes EndpointSlices.

Each server stands in the control planes' namespace, where its tenant's apiserver is, with an address
of its own that pods reach. What it answers with is chosen by the network's label alone, with the
`labels` option of its kubernetes plugin; nothing in CoreDNS is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tenancy import keys
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import Daemon, run
from tests.k8s.ring.tenants import Tenant

DOMAIN = "cluster.local"
_DNS_PORT = 53
# CoreDNS answers from nothing until it has listed; `ready` tells when it has.
_READY_PORT = 8181
_STARTED_S = 30.0

_COREFILE = """{domain}:{port} in-addr.arpa:{port} {{
    bind {address}
    errors
    ready {address}:{ready}
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        labels {label}={network}
        ttl 1
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class NetworkDns:
    """The DNS server of one network."""

    tenant: Tenant
    network: str
    address: str


@contextmanager
def serving_names(ring: Ring, servers: tuple[NetworkDns, ...]) -> Iterator[None]:
    """These servers, and in each of their tenants' planes the endpointslice controller."""
    with ExitStack() as stack:
        for tenant in {each.tenant.key: each.tenant for each in servers}.values():
            stack.callback(_start_controller(ring, tenant).stop)
        for server in servers:
            where = ["ip", "-n", ring.control.name, "addr"]
            run([*where, "add", f"{server.address}/24", "dev", "eth0"])
            stack.callback(run, [*where, "del", f"{server.address}/24", "dev", "eth0"])
            stack.callback(_start_server(ring, server).stop)
        yield


def _start_controller(ring: Ring, tenant: Tenant) -> Daemon:
    return Daemon(
        f"kube-controller-manager {tenant.key}",
        [
            *ring.control.enter,
            ring.binaries["kube-controller-manager"],
            f"--kubeconfig={tenant.apiserver.kubeconfig}",
            "--controllers=endpointslice-controller",
            "--leader-elect=false",
            # It serves nothing here, and two of them would want the same port.
            "--secure-port=0",
        ],
        ring.directory / f"controllers-{tenant.key}.log",
    )


def _start_server(ring: Ring, server: NetworkDns) -> Daemon:
    stem = f"coredns-{server.tenant.key}-{server.network}"
    corefile = ring.directory / f"{stem}.conf"
    corefile.write_text(
        _COREFILE.format(
            domain=DOMAIN,
            port=_DNS_PORT,
            ready=_READY_PORT,
            address=server.address,
            kubeconfig=server.tenant.apiserver.kubeconfig,
            label=keys.ARKTOS_NETWORK,
            network=server.network,
        )
    )
    daemon = Daemon(
        stem,
        [*ring.control.enter, ring.binaries["coredns"], "-conf", str(corefile)],
        ring.directory / f"{stem}.log",
    )

    def is_ready() -> bool:
        try:
            with ring.control.connect(server.address, _READY_PORT, timeout_s=1) as connection:
                connection.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
        except OSError:
            return False

    try:
        daemon.wait_until(is_ready, timeout_s=_STARTED_S)
    except BaseException:
        daemon.stop()
        raise
    return daemon
