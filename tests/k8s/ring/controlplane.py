# SPDX-License-Identifier: Apache-2.0
"""Control planes: one etcd, and one kube-apiserver each for the super cluster and every tenant."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.k8s.build import OLDER_SUFFIX, Binaries
from tests.k8s.ring import network, traces
from tests.k8s.ring.api import KubernetesApi, TlsEndpoint
from tests.k8s.ring.certs import CertificateFiles, signing_key_pem, write_leaf
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, RingProcess

_APISERVER_PORT = 6443
_ETCD_URL = "http://127.0.0.1:2379"
_READY_TIMEOUT_S = 60.0
_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_FLAGS = (
    # packaging/gate/required-plugins.yaml is one.
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)
_OLDER_FLAGS = ("--feature-gates=ExternalServiceAccountTokenSigner=true",)
# Of accounts' tokens.
WHOLE_CLUSTER_ISSUER = f"https://{_SERVICE_NAMES[-1]}"


@dataclass(frozen=True, slots=True)
class Apiserver:
    """A kube-apiserver and what its clients need."""

    name: str
    daemon: RingProcess
    authority: Authority
    api: KubernetesApi
    kubeconfig: Path
    kubelet_client: CertificateFiles

    def wait_ready(self) -> None:
        """Wait until all its checks pass."""
        self.daemon.wait_until(self.api.is_ready, timeout_s=_READY_TIMEOUT_S)


def start_etcd(namespace: NetworkNamespace, binaries: Binaries, directory: Path) -> RingProcess:
    """Start etcd on the namespace's loopback; every control plane has a prefix of its own in it."""
    daemon = RingProcess(
        "etcd",
        [
            *namespace.enter,
            binaries["etcd"],
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={_ETCD_URL}",
            f"--advertise-client-urls={_ETCD_URL}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        directory / "etcd.log",
    )

    def listens() -> bool:
        try:
            namespace.connect("127.0.0.1", 2379, timeout_s=1).close()
        except OSError:
            return False
        return True

    try:
        daemon.wait_until(listens, timeout_s=20)
    except RingError:
        daemon.stop()
        raise
    return daemon


def start_apiserver(
    name: str,
    namespace: NetworkNamespace,
    address: str,
    binaries: Binaries,
    directory: Path,
    *,
    authority: Authority,
    kubelet_client: Leaf | None = None,
    kubelet_authority_pem: bytes | None = None,
    service_cidrs: tuple[str, ...] = ("10.96.0.0/16",),
    accounts_of: Path | None = None,
    is_whole: bool = False,
    signer_socket: Path | None = None,
    is_older: bool = False,
) -> Apiserver:
    """Start a kube-apiserver of its own authority and service account key; does not wait for it.

    `kubelet_client` is shown to kubelets, or to what stands in front of them, whose serving
    certificate must come from `kubelet_authority_pem`. Without them there are no kubelets.
    `accounts_of` is the directory of another one, whose objects and accounts it serves too: pods made
    through it get their account's token, and it finds a webhook's pods by its Service's endpoints.
    `is_whole`: as clusters with controllers have it, with accounts' tokens in pods, the names that pods know
    it by, privileged pods, and aggregated API servers.
    `signer_socket` is of an external signer, which signs instead of a key here. `is_older`: of the minor
    version before, which has that behind a gate.
    """
    home = directory / name
    home.mkdir()
    first_ips = [str(ipaddress.ip_network(cidr)[1]) for cidr in service_cidrs] if is_whole else []
    leaf = authority.issue(
        "kube-apiserver",
        sans_ip=[address, *first_ips],
        sans_dns=_SERVICE_NAMES if is_whole else (),
        usages=("server",),
    )
    serving = write_leaf(leaf, home / "serving")
    client_leaf = kubelet_client or authority.issue("nobody", usages=("client",))
    client = write_leaf(client_leaf, home / "kubelet-client")
    (home / "ca.crt").write_bytes(authority.cert_pem)
    (home / "kubelet-ca.crt").write_bytes(kubelet_authority_pem or authority.cert_pem)
    if signer_socket is None:
        key = signing_key_pem() if accounts_of is None else (accounts_of / "accounts.key").read_bytes()
        (home / "accounts.key").write_bytes(key)
        signing = [f"--service-account-{use}-file={home / 'accounts.key'}" for use in ("key", "signing-key")]
    else:
        signing = [f"--service-account-signing-endpoint={signer_socket}"]
    own = [
        # No controller manager makes service accounts here, and no pod of the ring has one.
        *(["--disable-admission-plugins=ServiceAccount"] if accounts_of is None and not is_whole else []),
        *([] if accounts_of is None else ["--enable-aggregator-routing=true"]),
        *(_whole_cluster_flags(home) if is_whole else []),
    ]
    issuer = WHOLE_CLUSTER_ISSUER if is_whole else "https://kubernetes.default"
    admin = authority.issue(f"{name}-admin", organization="system:masters", usages=("client",))
    endpoint = TlsEndpoint(namespace, address, _APISERVER_PORT, authority.cert_pem, admin)
    kubeconfig = write_kubeconfig(home / "admin", f"https://{address}:{_APISERVER_PORT}", endpoint)
    daemon = RingProcess(
        f"kube-apiserver {name}",
        [
            *namespace.enter,
            binaries[f"kube-apiserver{OLDER_SUFFIX if is_older else ''}"],
            f"--etcd-servers={_ETCD_URL}",
            f"--etcd-prefix=/{name if accounts_of is None else accounts_of.name}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={_APISERVER_PORT}",
            f"--client-ca-file={home / 'ca.crt'}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            *signing,
            f"--service-account-issuer={issuer}",
            f"--service-cluster-ip-range={','.join(service_cidrs)}",
            "--authorization-mode=Node,RBAC",
            *own,
            *(_OLDER_FLAGS if is_older else _FLAGS),
            f"--kubelet-client-certificate={client.certificate}",
            f"--kubelet-client-key={client.key}",
            f"--kubelet-certificate-authority={home / 'kubelet-ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--cert-dir={home / 'certs'}",
        ],
        directory / f"apiserver-{name}.log",
    )
    return Apiserver(name, daemon, authority, KubernetesApi(endpoint), kubeconfig, client)


def _whole_cluster_flags(home: Path) -> list[str]:
    """Flags for an aggregator, whose authority is made here, and for privileged pods."""
    front_proxy = Authority.create("front-proxy")
    client = write_leaf(front_proxy.issue("front-proxy-client", usages=("client",)), home / "front-proxy")
    authority = home / "front-proxy-ca.crt"
    authority.write_bytes(front_proxy.cert_pem)
    return [
        "--allow-privileged=true",
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={client.certificate}",
        f"--proxy-client-key-file={client.key}",
    ]


@dataclass(slots=True)
class Authorities:
    """Who signs what. The super cluster's and the tenants' are with their apiservers."""

    kubelet_serving: Authority
    kubelet_clients: Authority
    agent_serving: Authority


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The super cluster's, before it has a node; `worker` is the node's network."""

    directory: Path
    control: NetworkNamespace
    worker: NetworkNamespace
    authorities: Authorities
    super_cluster: Apiserver


def start_control_plane(
    binaries: Binaries, stack: ExitStack, address: str, node_address: str, tenant_addresses: Iterable[str]
) -> ControlPlane:
    """Start etcd and the super cluster's apiserver, and do not wait for it; `stack` stops them."""
    directory, prefix = traces.open_directory(stack)
    control = NetworkNamespace(f"{prefix}-cp", address)
    worker = NetworkNamespace(f"{prefix}-node", node_address)
    stack.callback(network.delete, [control.name, worker.name])
    network.create_pair(control, worker, more=list(tenant_addresses))
    authorities = Authorities(
        *(Authority.create(name) for name in ("kubelet-serving", "kubelet-clients", "vn-agent-serving"))
    )
    stack.callback(start_etcd(control, binaries, directory).stop)
    super_cluster = start_apiserver(
        "super",
        control,
        address,
        binaries,
        directory,
        kubelet_client=authorities.kubelet_clients.issue(
            "super-apiserver", organization="system:masters", usages=("client",)
        ),
        kubelet_authority_pem=authorities.kubelet_serving.cert_pem,
        authority=Authority.create("super"),
    )
    stack.callback(super_cluster.daemon.stop)
    return ControlPlane(directory, control, worker, authorities, super_cluster)


def write_kubeconfig(stem: Path, server: str, endpoint: TlsEndpoint) -> Path:
    """Write a kubeconfig for the endpoint's client certificate, and the files it names."""
    assert endpoint.leaf is not None
    files = write_leaf(endpoint.leaf, stem)
    authority = stem.with_name(f"{stem.name}-ca.crt")
    authority.write_bytes(endpoint.authority_pem)
    target = stem.with_suffix(".kubeconfig")
    target.write_text(
        f"""apiVersion: v1
kind: Config
clusters:
- name: ring
  cluster: {{server: "{server}", certificate-authority: "{authority}"}}
users:
- name: ring
  user: {{client-certificate: "{files.certificate}", client-key: "{files.key}"}}
contexts:
- name: ring
  context: {{cluster: ring, user: ring}}
current-context: ring
"""
    )
    return target
