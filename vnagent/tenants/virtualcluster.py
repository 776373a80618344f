# SPDX-License-Identifier: Apache-2.0
"""Tenants out of VirtualCluster objects, their Secrets and their ConfigMap. Pure.

A VirtualCluster is a tenant while its control plane runs. In the namespace that is called as its
cluster key, VirtualCluster's own controller keeps (pkg/controller/secret, provisioner_native.go):
- Secret `root-ca`: the tenant's certificate authority;
- Secret `apiserver-ca`: the certificate that the tenant's apiserver shows to kubelets;
and an operator may add
- ConfigMap `vn-agent-clients`, key `clients.yaml`: further registered clients, in the form of a
  Tenant file's `spec.clients` (a metrics client, an apiserver's next key).

Of a Secret only `tls.crt` is decoded: the private keys beside it are never kept.

What the syncer brought down for a tenant is not believed. A tenant's namespace may get the name of
another tenant's key (`a` with namespace `b` makes `a-b`), and could then register clients for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daemonkit.config import yaml_values
from daemonkit.kube.resources import Key, ObjectMeta
from daemonkit.tls.contexts import TlsError, check_authorities
from tenancy import keys, names, x509
from tenancy.document import DEFAULT_CLUSTER_DOMAIN, TenantError, certificates, document_of, parse_tenant
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant

ROOT_CA = "root-ca"
APISERVER_CERTIFICATE = "apiserver-ca"
CLIENTS = "vn-agent-clients"
CLIENTS_KEY = "clients.yaml"

# For how long the past stays registered after a Secret was replaced: the kubelet needs up to two
# minutes to bring a new Secret into the apiserver's pod, and the pod its time to restart.
OVERLAP_S = 600.0

# `Updating` is declared upstream and never set; a control plane that is updated still runs.
_SERVED_PHASES = frozenset({"Running", "Updating"})


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_domain: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    cluster_namespace: str = ""
    phase: str = ""


class VirtualCluster(msgspec.Struct, frozen=True):
    """tenancy.x-k8s.io/v1alpha1 VirtualCluster, the part that we use."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


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


@dataclass(frozen=True, slots=True)
class Registered:
    """What one VirtualCluster and its objects say, before the overlap of a rotation.

    `authorities` (DER) and `apiserver_spki` come from the Secrets and may be rotated; `extra` are
    the clients that an operator named, which go at once when they are taken away.
    """

    key: str
    authorities: tuple[bytes, ...]
    apiserver_spki: str
    extra: Mapping[str, Role]
    cluster_domain: str


def is_served(cluster: VirtualCluster) -> bool:
    """Whether the tenant has a control plane that may call."""
    return cluster.status.phase in _SERVED_PHASES


def key_of(cluster: VirtualCluster) -> str | names.Refused:
    """The cluster key; the object's namespace and name are checked by the API server."""
    meta = cluster.metadata
    return names.cluster_key(meta.namespace, meta.name, meta.uid, cluster.status.cluster_namespace)


def source_of(cluster: VirtualCluster) -> str:
    """The name of the source. An object with another UID is another tenant, also under the same name."""
    meta = cluster.metadata
    return f"{meta.namespace}/{meta.name}/{meta.uid}"


def key_of_source(source: str) -> Key:
    """The namespace and name of the VirtualCluster that `source_of` named."""
    namespace, name, *_ = [*source.split("/"), ""]
    return namespace, name


def is_brought_down(metadata: ObjectMeta) -> bool:
    """Whether the syncer made this object for a tenant."""
    return keys.CLUSTER in metadata.annotations


def read(
    cluster: VirtualCluster,
    authority: CertificateSecret | str | None,
    certificate: CertificateSecret | str | None,
    clients: ClientsConfigMap | str | None,
) -> Registered | Bad:
    """What a VirtualCluster and its objects register.

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
        # One home for what a tenant may be: the reader of Tenant files checks the rest.
        own = Tenant(key, authorities, {spki: Role.APISERVER}, domain)
        document = document_of(own)
        parse_tenant(document)
        extra = _extra_clients(key, clients, document)
    except (TenantError, TlsError, ValueError) as error:
        return Bad(str(error))
    return Registered(key, authorities, spki, extra, domain)


def _certificates(namespace: str, name: str, secret: CertificateSecret | str | None) -> tuple[bytes, ...]:
    where = f"Secret {namespace}/{name}"
    if secret is None or (isinstance(secret, CertificateSecret) and is_brought_down(secret.metadata)):
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
    if clients is None or (isinstance(clients, ClientsConfigMap) and is_brought_down(clients.metadata)):
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


@dataclass(frozen=True, slots=True)
class Rotation:
    """What one tenant's Secrets hold, and what they held until a short while ago.

    An apiserver reads its certificate at start: after the Secret has changed it goes on to show the
    old one until it is restarted, and it must not be cut off meanwhile. `retired` has what was
    replaced, with the time until which it stays registered.
    """

    key: str = ""
    authorities: tuple[bytes, ...] = ()
    apiserver_spki: str = ""
    retired_authorities: Mapping[bytes, float] = field(default_factory=dict)
    retired_spkis: Mapping[str, float] = field(default_factory=dict)

    @property
    def next_end_s(self) -> float | None:
        """When the next of the retired is to go."""
        return min([*self.retired_authorities.values(), *self.retired_spkis.values()], default=None)


def turn(before: Rotation, now_in: Registered, now_s: float, overlap_s: float) -> Rotation:
    """The state after a reading at `now_s`. A tenant with another key starts anew."""
    if before.key != now_in.key:
        return Rotation(now_in.key, now_in.authorities, now_in.apiserver_spki)
    end_s = now_s + overlap_s
    authorities = dict(before.retired_authorities) | {
        der: end_s for der in before.authorities if der not in now_in.authorities
    }
    spkis = dict(before.retired_spkis)
    if before.apiserver_spki != now_in.apiserver_spki:
        spkis[before.apiserver_spki] = end_s
    return Rotation(
        now_in.key,
        now_in.authorities,
        now_in.apiserver_spki,
        {
            der: at
            for der, at in authorities.items()
            if at > now_s and der not in now_in.authorities and not _is_confusable(der, now_in.authorities)
        },
        {spki: at for spki, at in spkis.items() if at > now_s and spki != now_in.apiserver_spki},
    )


def tenant_of(now_in: Registered, rotation: Rotation) -> Tenant:
    """The registration with what is still registered of the past."""
    clients = (
        dict.fromkeys(rotation.retired_spkis, Role.APISERVER)
        | dict(now_in.extra)
        | {now_in.apiserver_spki: Role.APISERVER}
    )
    authorities = (*now_in.authorities, *rotation.retired_authorities)
    return Tenant(now_in.key, authorities, clients, now_in.cluster_domain)


class _SavedRotation(msgspec.Struct, rename="camel"):
    """Times are of the wall clock; certificates are base64 in JSON."""

    key: str
    authorities: tuple[bytes, ...]
    apiserver_spki: str
    retired_authorities: tuple[tuple[bytes, float], ...] = ()
    retired_spkis: dict[str, float] = {}


def dump_rotations(rotations: Mapping[str, Rotation], wall_minus_now_s: float) -> bytes:
    """The rotations for the saved state. `wall_minus_now_s` is what the wall clock shows more than theirs."""
    return msgspec.json.encode(
        {
            source: _SavedRotation(
                each.key,
                each.authorities,
                each.apiserver_spki,
                tuple((der, at + wall_minus_now_s) for der, at in each.retired_authorities.items()),
                {spki: at + wall_minus_now_s for spki, at in each.retired_spkis.items()},
            )
            for source, each in rotations.items()
        }
    )


def load_rotations(
    saved: bytes, wall_minus_now_s: float, now_s: float, overlap_s: float
) -> dict[str, Rotation]:
    """The rotations that `dump_rotations` saved. Raises ValueError for bytes that are none.

    What ended meanwhile is left out. A wall clock that was set back prolongs nothing beyond `overlap_s`.
    """

    def left(ends: Iterable[tuple[Any, float]]) -> dict[Any, float]:
        found = ((past, min(at - wall_minus_now_s, now_s + overlap_s)) for past, at in ends)
        return {past: at for past, at in found if at > now_s}

    try:
        found = msgspec.json.decode(saved, type=dict[str, _SavedRotation])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return {
        source: Rotation(
            each.key,
            each.authorities,
            each.apiserver_spki,
            left(each.retired_authorities),
            left(each.retired_spkis.items()),
        )
        for source, each in found.items()
    }


def _is_confusable(old: bytes, current: Iterable[bytes]) -> bool:
    """Whether OpenSSL could take `old` for one of `current` that has another key.

    The registry refuses a tenant with two such authorities, as it would verify by chance. Then the
    new one counts at once and there is no overlap.
    """
    subject, identifier = x509.canonical_subject(old), x509.subject_key_identifier(old)
    for der in current:
        other = x509.subject_key_identifier(der)
        is_alike = identifier is None or other is None or identifier == other
        if is_alike and x509.canonical_subject(der) == subject and x509.spki(der) != x509.spki(old):
            return True
    return False
