# SPDX-License-Identifier: Apache-2.0
"""Reads tenants from VirtualCluster objects, their Secrets and their ConfigMap.

A VirtualCluster is a tenant while its control plane runs. In the namespace with the name of its
cluster key, VirtualCluster's own controller keeps (pkg/controller/secret, provisioner_native.go):
- Secret `root-ca`: the tenant's certificate authority;
- Secret `apiserver-ca`: the certificate that the tenant's apiserver shows to kubelets;
and an operator may add
- ConfigMap `vn-agent-clients`, key `clients.yaml`: further registered clients, in the form of a
  Tenant file's `spec.clients` (a metrics client, an apiserver's next key).

Of a Secret only `tls.crt` is decoded: the private keys beside it are never kept.

Objects that the syncer created for a tenant are ignored. A tenant's namespace may get the name of
another tenant's key (`a` with namespace `b` makes `a-b`), and could then register clients for it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from daemonkit.config import yaml_values
from daemonkit.kube.resources import Key, ObjectMeta
from daemonkit.tls.contexts import TlsError, check_authorities
from tenancy import keys, names, x509
from tenancy.document import TenantError, certificates, document_of, parse_tenant
from tenancy.registry import Bad
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN, Role, Tenant
from vnagent.tenants.rotation import Registered

ROOT_CA = "root-ca"
APISERVER_CERTIFICATE = "apiserver-ca"
CLIENTS = "vn-agent-clients"
CLIENTS_KEY = "clients.yaml"

# Upstream declares `Updating` and never sets it; a control plane that is being updated still runs.
_SERVED_PHASES = frozenset({"Running", "Updating"})


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_domain: str = ""


class _PhaseStatus(msgspec.Struct, frozen=True, rename="camel"):
    cluster_namespace: str = ""
    phase: str = ""


class RegisteredCluster(msgspec.Struct, frozen=True):
    """The used part of a tenancy.x-k8s.io/v1alpha1 VirtualCluster."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _PhaseStatus = _PhaseStatus()


class _CertificateData(msgspec.Struct, frozen=True):
    # Base64 in JSON, decoded to bytes by msgspec.
    certificate: bytes = msgspec.field(name="tls.crt", default=b"")


class CertificateSecret(msgspec.Struct, frozen=True):
    """A Secret of type kubernetes.io/tls without its key."""

    metadata: ObjectMeta
    data: _CertificateData | None = None


class _ClientsData(msgspec.Struct, frozen=True):
    clients: str | None = msgspec.field(name=CLIENTS_KEY, default=None)


class ClientsConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: _ClientsData | None = None


def is_served(cluster: RegisteredCluster) -> bool:
    """Whether the tenant has a control plane that may call."""
    return cluster.status.phase in _SERVED_PHASES


def key_of(cluster: RegisteredCluster) -> str | names.Refused:
    """The cluster key; the object's namespace and name are checked by the API server."""
    meta = cluster.metadata
    return names.cluster_key(meta.namespace, meta.name, meta.uid, cluster.status.cluster_namespace)


def source_of(cluster: RegisteredCluster) -> str:
    """The name of the source. An object with another UID is another tenant, also under the same name."""
    meta = cluster.metadata
    return f"{meta.namespace}/{meta.name}/{meta.uid}"


def key_of_source(source: str) -> Key:
    """The namespace and name of the VirtualCluster that `source_of` named."""
    namespace, name, *_ = [*source.split("/"), ""]
    return namespace, name


def is_from_syncer(metadata: ObjectMeta) -> bool:
    """Whether the syncer created this object for a tenant."""
    return keys.CLUSTER in metadata.annotations


def read(
    cluster: RegisteredCluster,
    authority: CertificateSecret | str | None,
    certificate: CertificateSecret | str | None,
    clients: ClientsConfigMap | str | None,
) -> Registered | Bad:
    """Read the registration of a VirtualCluster and its objects.

    Each object is None if it does not exist, or the reason (a text) why it does not decode.
    """
    key = key_of(cluster)
    if isinstance(key, names.Refused):
        return Bad(key.reason)
    try:
        authorities = _certificates(key, ROOT_CA, authority)
        check_authorities(authorities)
        # The leaf comes first, and a chain may follow (RFC 8446, 4.4.2).
        leaf = _certificates(key, APISERVER_CERTIFICATE, certificate)[0]
        spki = x509.spki_sha256(leaf)
        domain = cluster.spec.cluster_domain or DEFAULT_CLUSTER_DOMAIN
        # The reader of Tenant files checks the rest.
        own = Tenant(key, authorities, {spki: Role.APISERVER}, domain)
        document = document_of(own)
        parse_tenant(document)
        extra = _extra_clients(key, clients, document)
    except (TenantError, TlsError, ValueError) as error:
        return Bad(str(error))
    return Registered(key, authorities, spki, extra, domain)


def _certificates(namespace: str, name: str, secret: CertificateSecret | str | None) -> tuple[bytes, ...]:
    where = f"Secret {namespace}/{name}"
    if secret is None or (isinstance(secret, CertificateSecret) and is_from_syncer(secret.metadata)):
        raise ValueError(f"{where} does not exist")
    if isinstance(secret, str):
        raise ValueError(f"{where}: {secret}")
    try:
        found = certificates((secret.data or _CertificateData()).certificate.decode())
    except UnicodeDecodeError:
        raise ValueError(f"{where}: tls.crt is not text") from None
    except ValueError as error:
        raise ValueError(f"{where}: tls.crt {error}") from None
    if not found:
        raise ValueError(f"{where}: tls.crt holds no certificate")
    return tuple(dict.fromkeys(found))


def _extra_clients(
    namespace: str, clients: ClientsConfigMap | str | None, document: dict[str, object]
) -> Mapping[str, Role]:
    where = f"ConfigMap {namespace}/{CLIENTS}"
    if clients is None or (isinstance(clients, ClientsConfigMap) and is_from_syncer(clients.metadata)):
        return {}
    if isinstance(clients, str):
        raise ValueError(f"{where}: {clients}")
    text = None if clients.data is None else clients.data.clients
    if text is None:
        raise ValueError(f"{where} has no {CLIENTS_KEY}")
    spec: Any = document["spec"]
    try:
        listed = document | {"spec": spec | {"clients": yaml_values.decode(text)}}
        return parse_tenant(listed).clients
    except (yaml_values.YamlError, TenantError) as error:
        raise ValueError(f"{where}: {error}") from None
