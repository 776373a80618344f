# SPDX-License-Identifier: Apache-2.0
"""The DNS servers of a control plane: its endpointslice controller, and stock CoreDNS.

The network's label alone chooses a server's records, by the `labels` option of its kubernetes plugin; CoreDNS
is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenancy import keys
from tests.k8s.build import Binaries
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess

DOMAIN = "cluster.local"
# CoreDNS has no records until it has listed; `ready` reports that.
_READY_PORT = 8181
_STARTED_S = 30.0

# Like an upstream server, it answers NXDOMAIN for any other name.
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
.:{port} {{
    bind {address}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server, in `namespace`."""

    namespace: NetworkNamespace
    address: str
    port: int = 53


def start_controller(
    name: str, namespace: NetworkNamespace, binaries: Binaries, apiserver: Apiserver, directory: Path
) -> RingProcess:
    """Start the endpointslice controller of a control plane; does not wait for it."""
    return RingProcess(
        f"kube-controller-manager {name}",
        [
            *namespace.enter,
            binaries["kube-controller-manager"],
            f"--kubeconfig={apiserver.kubeconfig}",
            "--controllers=endpointslice-controller",
            "--leader-elect=false",
            # It serves nothing here, and two of them would want the same port.
            "--secure-port=0",
        ],
        directory / f"controllers-{name}.log",
    )


def start_server(
    name: str, network: str, address: ServerAddress, binaries: Binaries, apiserver: Apiserver, directory: Path
) -> RingProcess:
    """Start CoreDNS for a network of a control plane, and wait until it has synced.

    Raises:
        RingError: it did not come up.
    """
    stem = f"coredns-{name}-{network}"
    corefile = directory / f"{stem}.conf"
    corefile.write_text(
        _COREFILE.format(
            domain=DOMAIN,
            port=address.port,
            ready=_READY_PORT,
            address=address.address,
            kubeconfig=apiserver.kubeconfig,
            label=keys.ARKTOS_NETWORK,
            network=network,
        )
    )
    daemon = RingProcess(
        stem,
        [*address.namespace.enter, binaries["coredns"], "-conf", str(corefile)],
        directory / f"{stem}.log",
    )

    def is_ready() -> bool:
        try:
            with address.namespace.connect(address.address, _READY_PORT, timeout_s=1) as connection:
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
