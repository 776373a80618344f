# SPDX-License-Identifier: Apache-2.0
"""What plans use of the operator's own objects in the super cluster, and whether each is as it should be.

Of a Secret only digests, certificates and facts of them are kept, never a key. Of the others what
`KEPT_STATUS` and `KEPT_DATA` name, beside the spec: nothing else may be read from `LiveObject.value`.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import CertificateFacts, SecretFacts, digest_of, secret_facts

KEPT_METADATA = ("generation", "ownerReferences")
"""Beside what `LiveMeta` has."""
_WORKLOAD_STATUS = ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration", "conditions")
KEPT_STATUS: Mapping[str, tuple[str, ...]] = {
    "Deployment": _WORKLOAD_STATUS,
    "StatefulSet": _WORKLOAD_STATUS,
    "Job": ("conditions", "succeeded"),
    "Service": ("loadBalancer",),
}
"""Fields of the status, by kind."""
KEPT_DATA = frozenset(
    {
        names.CLUSTER_VERSIONS,
        names.DEFAULTS_INVENTORY,
        names.ETCD_CONFIG,
        names.REGISTERED_CLIENTS,
    }
)
"""ConfigMaps whose values are read. Of the others their digests are enough."""
KEPT_CERTIFICATES = frozenset(
    {
        names.CLUSTER_CA,
        names.FRONT_PROXY_CA,
        names.ETCD_CA,
        names.KUBELET_CLIENT_CA,
        names.GATEWAY_CA,
        names.API_SERVER_KUBELET_CLIENT,
    }
)
"""Secrets whose certificates others get. Of the others facts are enough."""
# Labels and annotations in other domains are other people's.
_KEPT_DOMAINS = ("vcnode.io", "tenancy.x-k8s.io", "kubernetes.io")
_FOREIGN_ANNOTATIONS = ("deployment.kubernetes.io/", "pv.kubernetes.io/", "kubectl.kubernetes.io/")
# The operator writes less. What is larger is as little as it should be as one that lacks a value.
MAX_BODY_BYTES = 256 << 10
MAX_VALUES = 256


class LiveMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}

    @property
    def owner_uid(self) -> str:
        """The UID of the VirtualCluster that it was made for."""
        return self.labels.get(keys.VC_UID, "")


class LiveObject(msgspec.Struct, frozen=True):
    """One object. `digests` are of a Secret's or ConfigMap's values, `facts` of a Secret's certificates, and
    `certificates` those of a Secret of `KEPT_CERTIFICATES`. `body` is the rest, in msgpack."""

    metadata: LiveMeta
    body: bytes = b""
    digests: Mapping[str, str] = {}
    certificates: Mapping[str, bytes] = {}
    facts: Mapping[str, CertificateFacts | None] = {}

    @property
    def secret(self) -> SecretFacts:
        """What is known of a Secret."""
        return SecretFacts(self.metadata.annotations, self.digests, self.facts)

    @property
    def value(self) -> Object:
        """What is kept of the object, decoded anew at each access. A Secret has none."""
        found: Object = msgspec.msgpack.decode(self.body)
        return found

    @property
    def is_ending(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.metadata.deletion_timestamp)


class _SecretShape(msgspec.Struct, frozen=True):
    metadata: LiveMeta
    data: dict[str, bytes] = {}


def parse_live(kind: str, raw: msgspec.Raw | bytes) -> LiveObject:
    """What is kept of an object of this kind. Raises msgspec.ValidationError."""
    if kind == "Secret":
        return _parse_secret(raw)
    value = msgspec.json.decode(raw, type=dict[str, Any])
    meta = _own_meta(msgspec.convert(value.get("metadata"), LiveMeta))
    data = msgspec.convert(value.pop("data", None) or {}, dict[str, str]) if kind == "ConfigMap" else {}
    if meta.name in KEPT_DATA and kind == "ConfigMap":
        value["data"] = data
    digests = {key: digest_of(text.encode()) for key, text in data.items()}
    return LiveObject(meta, _body(kind, value), _bounded(digests))


def _parse_secret(raw: msgspec.Raw | bytes) -> LiveObject:
    found = msgspec.json.decode(raw, type=_SecretShape)
    certificates = {key: value for key, value in found.data.items() if key.endswith(".crt")}
    if sum(map(len, certificates.values())) > MAX_BODY_BYTES:
        certificates = {}
    meta = _own_meta(found.metadata)
    facts = secret_facts(
        meta.annotations,
        _bounded({key: digest_of(value) for key, value in found.data.items()}),
        certificates,
    )
    kept = certificates if meta.name in KEPT_CERTIFICATES else {}
    return LiveObject(meta, b"", facts.digests, kept, facts.certificates)


def _bounded(digests: dict[str, str]) -> dict[str, str]:
    return digests if len(digests) <= MAX_VALUES else {}


def _own_meta(meta: LiveMeta) -> LiveMeta:
    return msgspec.structs.replace(meta, annotations=_own(meta.annotations), labels=_own(meta.labels))


def _own(values: dict[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in values.items()
        if key.partition("/")[0].endswith(_KEPT_DOMAINS) and not key.startswith(_FOREIGN_ANNOTATIONS)
    }


def _body(kind: str, value: Object) -> bytes:
    metadata, status = value.pop("metadata"), value.pop("status", None) or {}
    kept = {key: each for key, each in value.items() if key not in ("apiVersion", "kind")}
    kept["metadata"] = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    found = {key: status[key] for key in KEPT_STATUS.get(kind, ()) if key in status}
    kept["status"] = found
    body = msgspec.msgpack.encode(kept)
    return body if len(body) <= MAX_BODY_BYTES else msgspec.msgpack.encode({"metadata": kept["metadata"]})


def contains(live: Any, desired: Any) -> bool:
    """Whether a value as the API server has it has all that is desired; it fills in defaults, and may have
    more.

    Lists of objects with a `name` are compared by name, as server-side apply merges them; others by place.
    """
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            contains(live[key], value) if key in live else _is_empty(value) for key, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        if not isinstance(live, list) or len(live) < len(desired):
            return not desired and live is None
        if desired and all(isinstance(each, Mapping) and "name" in each for each in desired):
            named = {each.get("name"): each for each in live if isinstance(each, Mapping)}
            return len(live) == len(desired) and all(
                each["name"] in named and contains(named[each["name"]], each) for each in desired
            )
        return len(live) == len(desired) and all(map(contains, live, desired))
    return bool(live == desired)


def _is_empty(value: object) -> bool:
    """What the API server leaves out, as it is a type's zero."""
    return (
        value is None or value is False or value in ("", 0) or (isinstance(value, list | dict) and not value)
    )


def is_as_desired(live: LiveObject, desired: Object) -> bool:
    """Whether an object needs no write. Values of a Secret or ConfigMap are compared by their digests."""
    meta = desired["metadata"]
    if not contains(live.metadata.labels, meta.get("labels", {})):
        return False
    if not contains(live.metadata.annotations, meta.get("annotations", {})):
        return False
    rest = {key: value for key, value in desired.items() if key not in ("metadata", "apiVersion", "kind")}
    if desired["kind"] == "Secret":
        data: Mapping[str, str] = rest.get("data", {})
        return _has_values(live, {key: base64.b64decode(value) for key, value in data.items()})
    if desired["kind"] == "ConfigMap":
        texts: Mapping[str, str] = rest.pop("data", {})
        values = {key: text.encode() for key, text in texts.items() if text or key in live.digests}
        return _has_values(live, values) and (not rest or contains(live.value, rest))
    return contains(live.value, rest)


def _has_values(live: LiveObject, values: Mapping[str, bytes]) -> bool:
    return all(live.digests.get(key) == digest_of(value) for key, value in values.items())
