# SPDX-License-Identifier: Apache-2.0
"""What makes names of a control plane: its endpointslice controller, and stock CoreDNS.

What a server answers with is chosen by the network's label alone, with the `labels` option of its
kubernetes plugin; nothing in CoreDNS is changed.
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
# CoreDNS answers from nothing until it has listed; `ready` tells when it has.
_READY_PORT = 8181
_STARTED_S = 30.0

# Of any other name an upstream server would say that there is none.
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
class ServerPlace:
    """Where a server stands: `namespace` has `address`."""

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
    name: str, network: str, place: ServerPlace, binaries: Binaries, apiserver: Apiserver, directory: Path
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
            port=place.port,
            ready=_READY_PORT,
            address=place.address,
            kubeconfig=apiserver.kubeconfig,
            label=keys.ARKTOS_NETWORK,
            network=network,
        )
    )
    daemon = RingProcess(
        stem,
        [*place.namespace.enter, binaries["coredns"], "-conf", str(corefile)],
        directory / f"{stem}.log",
    )

    def is_ready() -> bool:
        try:
            with place.namespace.connect(place.address, _READY_PORT, timeout_s=1) as connection:
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
