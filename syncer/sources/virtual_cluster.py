# SPDX-License-Identifier: Apache-2.0
"""Reads a VirtualCluster: who the tenant is, and where the credentials for its control plane are.

Upstream keeps the kubeconfig of a tenant's administrator in an annotation of the VirtualCluster, or in a
Secret of the namespace that is named as the cluster key (docs/spec/virtualcluster.md#credentials).
"""

import base64
import binascii
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from daemonkit.kube import kubeconfig
from daemonkit.kube.kubeconfig import Access, KubeconfigError
from daemonkit.kube.resources import ObjectMeta
from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.port import IS_SUPER_CLUSTER, Reachable, TenantState, Unusable
from tenancy import keys, names

SECRET = "admin-kubeconfig"  # noqa: S105 - the name of an object, not a secret
# Cluster API's convention for Secrets that an annotation names.
_NAMED_SECRET_KEY = "value"  # noqa: S105 - a key in an object
_SERVED_PHASES = frozenset({"Running", "Updating"})
_AVAILABLE = "ControlPlaneAvailable"
MAX_WEIGHT = 100
# Prefixes are compared with every key of every object.
_MAX_PREFIXES = 100
_MAX_TOKEN_CHARS = 64
_TOKEN_CHARS = frozenset("0123456789abcdef")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_domain: str = ""
    transparent_meta_prefixes: list[str] | None = None
    opaque_meta_prefixes: list[str] | None = None
    import_: Any = msgspec.field(default=None, name="import")


class _Restore(msgspec.Struct, frozen=True):
    hold: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    cluster_namespace: str = ""
    phase: str = ""
    conditions: list[dict[str, str]] | None = None
    restore: _Restore | None = None


class VirtualCluster(msgspec.Struct, frozen=True):
    """The used part of a tenancy.x-k8s.io/v1alpha1 VirtualCluster."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class KubeconfigSecret(msgspec.Struct, frozen=True):
    """A Secret whose data may have a kubeconfig; base64, as JSON has it."""

    metadata: ObjectMeta
    data: dict[str, bytes] | None = None


class SecretRef(msgspec.Struct, frozen=True):
    """Where the kubeconfig is, if it is not in the VirtualCluster."""

    namespace: str
    name: str
    key: str


_TenantSource = tuple[VirtualCluster, KubeconfigSecret | str | None, str]
"""What the tenant of a VirtualCluster is read from: itself, its Secret, and the super cluster's address."""


def is_served(cluster: VirtualCluster) -> bool:
    """Whether the tenant has a control plane."""
    return cluster.status.phase in _SERVED_PHASES


def source_of(cluster: VirtualCluster) -> str:
    """The name of the source. An object with another UID is another tenant, also under the same name."""
    meta = cluster.metadata
    return f"{meta.namespace}/{meta.name}/{meta.uid}"


def secret_of(cluster: VirtualCluster) -> SecretRef | None:
    """The Secret that has the kubeconfig; None where an annotation has it, or the key is refused."""
    annotations = cluster.metadata.annotations
    key = key_of(cluster)
    if keys.ADMIN_KUBECONFIG in annotations or isinstance(key, names.Refused):
        return None
    if named := annotations.get(keys.SECRET_ADMIN_KUBECONFIG):
        return SecretRef(key, named, _NAMED_SECRET_KEY)
    return SecretRef(key, SECRET, SECRET)


def tenant_of(
    cluster: VirtualCluster, secret: KubeconfigSecret | str | None, super_server: str
) -> TenantState:
    """The tenant of a served VirtualCluster.

    `secret` is that of `secret_of`, None if it does not exist, or the reason why it cannot be decoded.
    A kubeconfig that leads to `super_server` is refused: the syncer would copy the super cluster into itself.
    """
    meta = cluster.metadata
    where = (meta.namespace, meta.name)
    key = key_of(cluster)
    if isinstance(key, names.Refused):
        return Unusable("", "ClusterKeyRefused", key.reason, where)
    try:
        access = _access(cluster, secret)
        weight = _weight(meta.annotations)
    except ValueError as error:
        return Unusable(key, "CredentialsUnusable", str(error), where)
    if access.server == super_server:
        return Unusable(key, "CredentialsUnusable", IS_SUPER_CLUSTER, where)
    return Reachable(
        TenantCluster(
            key,
            meta.namespace,
            meta.name,
            meta.uid,
            cluster.spec.cluster_domain,
            _prefixes(cluster.spec.transparent_meta_prefixes),
            _prefixes(cluster.spec.opaque_meta_prefixes),
            weight,
            policy_name_of(cluster),
            meta.annotations.get(keys.RELEASE_HELD, ""),
            _restore_token(cluster),
        ),
        access,
        where,
        _available_since(cluster),
    )


def _available_since(cluster: VirtualCluster) -> str:
    """Since when its control plane has been available, by vc-operator's condition."""
    for each in cluster.status.conditions or ():
        if (each.get("type"), each.get("status")) == (_AVAILABLE, "True"):
            return each.get("lastTransitionTime", "")
    return ""


class TenantStates:
    """The tenants of the VirtualClusters that were published last.

    Whatever changes of one, all are published. A kubeconfig is read again when what it came from has changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[_TenantSource, TenantState]] = {}

    def of(
        self, clusters: Iterable[tuple[VirtualCluster, KubeconfigSecret | str | None]], super_server: str
    ) -> dict[str, TenantState]:
        """The tenants of served VirtualClusters with their Secrets, as `tenant_of` takes them, by source."""
        before, self._known = self._known, {}
        for cluster, secret in clusters:
            source, read = source_of(cluster), (cluster, secret, super_server)
            known = before.get(source)
            state = tenant_of(*read) if known is None or known[0] != read else known[1]
            self._known[source] = read, state
        return {source: state for source, (_, state) in self._known.items()}


def with_condition(
    conditions: list[dict[str, str]] | None, reason: str, message: str, at: str, *, is_true: bool = True
) -> list[dict[str, str]] | None:
    """The conditions with this one, in upstream's form: one for each reason. None if that changes nothing.

    One that was never there is not written as False.
    """
    status = "True" if is_true else "False"
    before = next((each for each in conditions or () if each.get("reason") == reason), None)
    if before is None and not is_true:
        return None
    if before is not None and (before.get("status"), before.get("message", "")) == (status, message):
        return None
    kept = [each for each in conditions or () if each.get("reason") != reason]
    condition = {"status": status, "lastTransitionTime": at, "reason": reason, "message": message}
    return [*kept, condition]


def true_condition(cluster: VirtualCluster, reason: str) -> str | None:
    """The message of a condition whose status is True; None if there is none."""
    for each in cluster.status.conditions or ():
        if each.get("reason") == reason and each.get("status") == "True":
            return each.get("message", "")
    return None


def key_of(cluster: VirtualCluster) -> str | names.Refused:
    """The cluster key of a VirtualCluster, or why it can have none."""
    meta = cluster.metadata
    return names.cluster_key(meta.namespace, meta.name, meta.uid, cluster.status.cluster_namespace)


def policy_name_of(cluster: VirtualCluster) -> str:
    """The name of its SyncPolicy, which is in its own namespace."""
    return cluster.metadata.annotations.get(keys.SYNC_POLICY, "default")


def _access(cluster: VirtualCluster, secret: KubeconfigSecret | str | None) -> Access:
    # Where it leads is in a Secret that the author of the VirtualCluster names, and its copy is read here.
    is_foreign = cluster.spec.import_ is not None
    text = cluster.metadata.annotations.get(keys.ADMIN_KUBECONFIG)
    if text is not None:
        where = f"annotation {keys.ADMIN_KUBECONFIG}"
        try:
            embedded = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError(f"{where} is not base64") from None
        return _embedded(embedded, where, kubeconfig.parse_foreign, is_foreign=is_foreign)
    ref = secret_of(cluster)
    where = "Secret" if ref is None else f"Secret {ref.namespace}/{ref.name}"
    if secret is None or (
        isinstance(secret, KubeconfigSecret) and keys.CLUSTER in secret.metadata.annotations
    ):
        # One that the syncer made for a tenant is that tenant's own text.
        raise ValueError(f"{where} does not exist")
    if isinstance(secret, str):
        raise ValueError(f"{where}: {secret}")
    content = (secret.data or {}).get("" if ref is None else ref.key)
    if content is None:
        raise ValueError(f"{where} has no key {'' if ref is None else ref.key}")
    parse = kubeconfig.parse_foreign if is_foreign else _parse
    return _embedded(content, where, parse, is_foreign=is_foreign)


def _parse(text: bytes) -> Access:
    return kubeconfig.parse(text, Path("/"))


def _embedded(text: bytes, where: str, parse: Callable[[bytes], Access], *, is_foreign: bool) -> Access:
    """A kubeconfig without files: who writes a VirtualCluster must not name files of this host."""
    try:
        access = parse(text)
    except KubeconfigError as error:
        raise ValueError(f"{where}: {error}") from None
    if access.files:
        raise ValueError(f"{where}: it names files; embed certificates, key and token")
    return dataclasses.replace(access, is_foreign=is_foreign)


def _weight(annotations: Mapping[str, str]) -> int:
    text = annotations.get(keys.SYNC_WEIGHT)
    if text is None:
        return 1
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MAX_WEIGHT:
        return int(text)
    raise ValueError(f"annotation {keys.SYNC_WEIGHT}: expected a number from 1 to {MAX_WEIGHT}")


def _restore_token(cluster: VirtualCluster) -> str:
    """Of a restore by vc-operator: its status goes first, as a replace of the VirtualCluster drops
    annotations. What cannot be a token counts as none: the condition could not name it."""
    restore = cluster.status.restore
    text = restore.hold if restore is not None else ""
    text = text or cluster.metadata.annotations.get(keys.HOLD_DELETIONS, "")
    return text if len(text) <= _MAX_TOKEN_CHARS and set(text) <= _TOKEN_CHARS else ""


def _prefixes(found: list[str] | None) -> tuple[str, ...]:
    return tuple(each for each in found or () if each)[:_MAX_PREFIXES]
