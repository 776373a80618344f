# SPDX-License-Identifier: Apache-2.0
"""Real API servers on loopback: one for the super cluster, one for each tenant, over one etcd."""

import contextlib
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devkit.kube.wire import kubeconfig
from devkit.pki import Authority, Leaf
from tests.k8s.build import Binaries
from tests.k8s.ring.certs import signing_key_pem, write_leaf

_READY_S = 90.0
_STOP_S = 10.0


@dataclass(slots=True)
class RealApiserver:
    """One kube-apiserver, its authority, and an administrator's certificate for it."""

    name: str
    port: int
    authority: Authority
    admin: Leaf
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self) -> str:
        return kubeconfig(self.url, self.authority.cert_pem, self.admin)

    def wait_ready(self) -> None:
        """Raises TimeoutError, RuntimeError if the process has ended."""
        context = ssl.create_default_context(cadata=self.authority.cert_pem.decode())
        self.admin.load_into(context)
        end = time.monotonic() + _READY_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"kube-apiserver {self.name} has ended")
            if self._is_ready(context):
                return
            time.sleep(0.2)  # pace: of the probes
        raise TimeoutError(f"kube-apiserver {self.name} is not ready within {_READY_S} s")

    def _is_ready(self, context: ssl.SSLContext) -> bool:
        url = f"{self.url}/readyz"
        try:
            with urllib.request.urlopen(url, context=context, timeout=2) as reply:  # noqa: S310 - our own address
                return bool(reply.status == 200)
        except OSError:
            return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def control_planes(
    binaries: Binaries, directory: Path, names: tuple[str, ...]
) -> Iterator[dict[str, RealApiserver]]:
    """Start etcd and an API server for each name, and wait until all are ready."""
    with contextlib.ExitStack() as stack:
        client, peer = free_port(), free_port()
        etcd_url = f"http://127.0.0.1:{client}"
        _start(
            stack,
            directory / "etcd.log",
            binaries["etcd"],
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        servers = {name: _start_apiserver(stack, binaries, directory, name, etcd_url) for name in names}
        for server in servers.values():
            server.wait_ready()
        yield servers


def _start_apiserver(
    stack: contextlib.ExitStack, binaries: Binaries, directory: Path, name: str, etcd_url: str
) -> RealApiserver:
    home = directory / name
    home.mkdir()
    authority = Authority.create(name)
    serving = write_leaf(
        authority.issue("kube-apiserver", sans_ip=["127.0.0.1"], usages=("server",)), home / "serving"
    )
    (home / "ca.crt").write_bytes(authority.cert_pem)
    (home / "accounts.key").write_bytes(signing_key_pem())
    port = free_port()
    process = _start(
        stack,
        directory / f"apiserver-{name}.log",
        binaries["kube-apiserver"],
        f"--etcd-servers={etcd_url}",
        f"--etcd-prefix=/{name}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--client-ca-file={home / 'ca.crt'}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--service-account-key-file={home / 'accounts.key'}",
        f"--service-account-signing-key-file={home / 'accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        # No controller manager makes service accounts here.
        "--disable-admission-plugins=ServiceAccount",
        f"--cert-dir={home / 'certs'}",
        # No endpoints of `kubernetes`: a loopback address is refused there.
        "--endpoint-reconciler-type=none",
    )
    admin = authority.issue(f"{name}-admin", organization="system:masters", usages=("client",))
    return RealApiserver(name, port, authority, admin, process)


def _start(stack: contextlib.ExitStack, log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
