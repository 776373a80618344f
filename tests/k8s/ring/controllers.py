# SPDX-License-Identifier: Apache-2.0
"""The controllers and the scheduler of a control plane, as ordinary clusters run them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from devkit.files import replace_file
from tests.k8s.build import Binaries
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess

# Neither program serves anything here; several of a kind in one namespace would want the same port.
_SHARED = ("--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")

# By default an autoscaler waits up to 15 s between two looks, and 5 minutes for a new pod's first figures.
_AUTOSCALER = (
    "--horizontal-pod-autoscaler-sync-period=2s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
)


def start_controllers(
    namespace: NetworkNamespace, binaries: Binaries, apiserver: Apiserver, directory: Path
) -> RingProcess:
    """Start all controllers that are on by default; does not wait for them.

    They sign with the control plane's own authority and accounts' key, which lie in its directory.
    """
    home = directory / apiserver.name
    authority_key = home / "ca.key"
    pem = apiserver.authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    replace_file(authority_key, pem, mode=0o600)
    return RingProcess(
        f"kube-controller-manager {apiserver.name}",
        [
            *namespace.enter,
            binaries["kube-controller-manager"],
            f"--kubeconfig={apiserver.kubeconfig}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={home / 'accounts.key'}",
            f"--root-ca-file={home / 'ca.crt'}",
            f"--cluster-signing-cert-file={home / 'ca.crt'}",
            f"--cluster-signing-key-file={authority_key}",
            *_AUTOSCALER,
            *_SHARED,
        ],
        directory / f"controllers-{apiserver.name}.log",
    )


def start_scheduler(
    namespace: NetworkNamespace, binaries: Binaries, apiserver: Apiserver, directory: Path
) -> RingProcess:
    """Start the scheduler; does not wait for it."""
    return RingProcess(
        f"kube-scheduler {apiserver.name}",
        [
            *namespace.enter,
            binaries["kube-scheduler"],
            f"--kubeconfig={apiserver.kubeconfig}",
            *_SHARED,
        ],
        directory / f"scheduler-{apiserver.name}.log",
    )
