# SPDX-License-Identifier: Apache-2.0
"""Which authorities and certificates a control plane has, and in which Secret each private key is.

Five authorities, because a tenant's administrator can have any client certificate signed by the cluster's: it
approves a CertificateSigningRequest of its own, and the controller manager signs it. So whatever trusts the
cluster authority trusts the tenant. The datastore, the nodes' vn-agent, aggregated API servers and the
gateway trust authorities that sign nothing for tenants.
"""

import enum
import hashlib
import ipaddress
from collections.abc import Sequence

import msgspec

from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import MAX_PKI_DAYS

# Ten years, as kubeadm's; a rotation replaces an authority before, and its leaves never outlive it.
AUTHORITY_DAYS = 3650
# Of credentials that can do everything, or that people copy: what is lost is worthless the next day.
SHORT_DAYS = 1

TENANT_ADMIN = "vcnode:tenant-admin"
TENANT_ADMINS = "vcnode:tenant-admins"
SYNCER = "vcnode:vc-syncer"
SYNCERS = "vcnode:vc-syncers"
OPERATOR_USER = "vcnode:vc-operator"
MASTERS = "system:masters"
CONTROLLER_MANAGER_USER = "system:kube-controller-manager"

# Enough for each size of etcd, so that one that grows keeps its certificate.
_MAX_ETCD_MEMBERS = 3
_LOOPBACK = "127.0.0.1"


class CertificateUsage(enum.StrEnum):
    """What a certificate may be used for (extended key usage, RFC 5280, 4.2.1.12)."""

    SERVER = "server"
    CLIENT = "client"


class SecretForm(enum.StrEnum):
    """How a Secret holds a key pair; `tls.crt` is in each, so that its public part can be read alone."""

    PAIR = "pair"
    """`tls.crt` and `tls.key`."""
    KUBECONFIG = "kubeconfig"
    """Besides, a kubeconfig that holds all: for programs that read it from the API, and for people."""
    KUBECONFIG_FILES = "kubeconfig-files"
    """Besides, a kubeconfig that names `tls.crt`, `tls.key` and `ca.crt` beside it: client-go looks at such
    files again every 5 minutes, and never at what a kubeconfig holds itself (client-go,
    transport/cert_rotation.go)."""


class AuthoritySpec(msgspec.Struct, frozen=True):
    """An authority. `secret` is the name of its Secret, `bundle` the key of its bundle in ConfigMap
    `authorities`; without one, its bundle is in the Secret that vn-agent reads.

    `usages` bound what its certificates can be used for: verifiers want a leaf's usage in each certificate
    above it. `signs_below`: a later authority may be certified by this one, for those who know this one
    alone.
    """

    secret: str
    bundle: str
    usages: tuple[CertificateUsage, ...]
    organization: str = ""
    days: int = AUTHORITY_DAYS
    signs_below: bool = False


AUTHORITIES: tuple[AuthoritySpec, ...] = (
    AuthoritySpec(
        names.CLUSTER_CA,
        "cluster-ca.crt",
        (CertificateUsage.SERVER, CertificateUsage.CLIENT),
        signs_below=True,
    ),
    AuthoritySpec(names.FRONT_PROXY_CA, "front-proxy-ca.crt", (CertificateUsage.CLIENT,)),
    AuthoritySpec(
        names.ETCD_CA,
        "etcd-ca.crt",
        (CertificateUsage.SERVER, CertificateUsage.CLIENT),
        signs_below=True,
    ),
    AuthoritySpec(names.KUBELET_CLIENT_CA, "", (CertificateUsage.CLIENT,)),
    AuthoritySpec(names.GATEWAY_CA, "gateway-ca.crt", (CertificateUsage.CLIENT,)),
)


class LeafSpec(msgspec.Struct, frozen=True):
    """A certificate that is no authority's: what it is issued for, by whom, and in which Secret it is.

    `server` and `kubeconfig_key` are of the forms that have a kubeconfig. `is_registered`: a verifier accepts
    this very key only, so the next one is registered there before its first use.
    """

    namespace: str
    secret: str
    authority: str
    common_name: str
    usages: tuple[CertificateUsage, ...]
    days: int
    organizations: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    form: SecretForm = SecretForm.PAIR
    server: str = ""
    kubeconfig_key: str = ""
    is_registered: bool = False

    @property
    def ref(self) -> Ref:
        """Its Secret."""
        return Ref("Secret", self.namespace, self.secret)


def authorities(control_plane: ControlPlane) -> tuple[AuthoritySpec, ...]:
    """The five of a tenant, with its key in their names.

    vn-agent's trust store has the authorities of all tenants, and finds an issuer by its name first.
    """
    return tuple(msgspec.structs.replace(spec, organization=control_plane.key) for spec in AUTHORITIES)


def spec_digest(spec: LeafSpec, authority_key: str, bundle: bytes) -> str:
    """What a leaf's Secret was made for: annotation `vcnode.io/spec-digest`.

    `authority_key` is the SPKI of the certificate that signs now. `bundle` counts where the Secret has it.
    """
    trusted = b"" if spec.form is SecretForm.PAIR else bundle
    parts = (msgspec.json.encode(spec), authority_key.encode(), trusted)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def leaves(
    control_plane: ControlPlane,
    service_addresses: Sequence[str],
    external_names: Sequence[str],
    endpoint: str = "",
) -> tuple[LeafSpec, ...]:
    """All certificates of a control plane, in the order in which they are issued.

    `service_addresses` are the cluster IPs of `apiserver-svc`, `external_names` the host names and addresses
    by which its exposure is reached, `endpoint` the URL there: without it port 6443 of the first name.
    """
    key, days = control_plane.key, min(max(control_plane.pki_days, 1), MAX_PKI_DAYS)
    inside = server_url(service_addresses[0]) if service_addresses else ""
    outside = endpoint or (server_url(external_names[0]) if external_names else inside)
    etcd = _etcd_leaves(key, days) if control_plane.has_own_store else ()
    return (
        *etcd,
        _api_server_serving(control_plane, days, service_addresses, external_names),
        LeafSpec(
            key,
            names.API_SERVER_KUBELET_CLIENT,
            names.KUBELET_CLIENT_CA,
            "kube-apiserver-kubelet-client",
            (CertificateUsage.CLIENT,),
            days,
            is_registered=True,
        ),
        *_metrics_client(control_plane, days),
        LeafSpec(
            key,
            names.FRONT_PROXY_CLIENT,
            names.FRONT_PROXY_CA,
            "front-proxy-client",
            (CertificateUsage.CLIENT,),
            days,
        ),
        LeafSpec(
            key,
            names.CONTROLLER_MANAGER_CLIENT,
            names.CLUSTER_CA,
            CONTROLLER_MANAGER_USER,
            (CertificateUsage.CLIENT,),
            days,
            form=SecretForm.KUBECONFIG_FILES,
            server=inside,
            kubeconfig_key=names.KUBECONFIG_KEY,
        ),
        LeafSpec(
            key,
            names.CONTROLLER_MANAGER_SERVING,
            names.CLUSTER_CA,
            "kube-controller-manager",
            (CertificateUsage.SERVER,),
            days,
            dns=("localhost", names.CONTROLLER_MANAGER),
            ips=(_LOOPBACK,),
        ),
        _kubeconfig(
            key, names.OPERATOR_CLIENT, names.KUBECONFIG_KEY, inside, OPERATOR_USER, MASTERS, SHORT_DAYS
        ),
        _kubeconfig(key, names.SYNCER_CLIENT, names.SYNCER_CLIENT, inside, SYNCER, SYNCERS, days),
        _kubeconfig(
            control_plane.namespace,
            names.tenant_kubeconfig(control_plane.name),
            "value",
            outside,
            TENANT_ADMIN,
            TENANT_ADMINS,
            SHORT_DAYS,
        ),
    )


def server_url(host: str) -> str:
    """The URL of an API server; an IPv6 address is in brackets."""
    return f"https://{f'[{host}]' if ':' in host else host}:{names.API_SERVER_PORT}"


def _kubeconfig(
    namespace: str, secret: str, key: str, server: str, user: str, group: str, days: int
) -> LeafSpec:
    return LeafSpec(
        namespace,
        secret,
        names.CLUSTER_CA,
        user,
        (CertificateUsage.CLIENT,),
        days,
        organizations=(group,),
        form=SecretForm.KUBECONFIG,
        server=server,
        kubeconfig_key=key,
    )


def _metrics_client(control_plane: ControlPlane, days: int) -> tuple[LeafSpec, ...]:
    """Of metrics-server in the tenant, if the release has one."""
    if not control_plane.release.images.metrics_server:
        return ()
    spec = LeafSpec(
        control_plane.key,
        names.METRICS_CLIENT,
        names.KUBELET_CLIENT_CA,
        "metrics-server",
        (CertificateUsage.CLIENT,),
        days,
        is_registered=True,
    )
    return (spec,)


def _etcd_leaves(key: str, days: int) -> tuple[LeafSpec, ...]:
    members = [f"{names.ETCD}-{ordinal}.{names.ETCD}" for ordinal in range(_MAX_ETCD_MEMBERS)]
    hosts = [each for host in (names.ETCD, *members) for each in (host, f"{host}.{key}", f"{host}.{key}.svc")]
    return (
        # A member is a client of the other ones, by the same pair.
        LeafSpec(
            key,
            names.ETCD_SERVER,
            names.ETCD_CA,
            names.ETCD,
            (CertificateUsage.SERVER, CertificateUsage.CLIENT),
            days,
            dns=("localhost", *hosts),
            ips=(_LOOPBACK,),
        ),
        LeafSpec(
            key,
            names.API_SERVER_ETCD_CLIENT,
            names.ETCD_CA,
            "kube-apiserver-etcd-client",
            (CertificateUsage.CLIENT,),
            days,
        ),
    )


def _api_server_serving(
    control_plane: ControlPlane, days: int, service_addresses: Sequence[str], external_names: Sequence[str]
) -> LeafSpec:
    service = f"{names.API_SERVER_SERVICE}.{control_plane.key}"
    hosts = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{control_plane.cluster_domain}",
        names.API_SERVER_SERVICE,
        service,
        f"{service}.svc",
        *(each for each in external_names if not is_address(each)),
    ]
    addresses = [
        *control_plane.first_service_addresses,
        *service_addresses,
        *filter(is_address, external_names),
    ]
    return LeafSpec(
        control_plane.key,
        names.API_SERVER_SERVING,
        names.CLUSTER_CA,
        "kube-apiserver",
        (CertificateUsage.SERVER,),
        days,
        dns=tuple(dict.fromkeys(hosts)),
        ips=tuple(dict.fromkeys(addresses)),
    )


def is_address(text: str) -> bool:
    """Whether this is an IP address rather than a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
