# SPDX-License-Identifier: Apache-2.0
"""Objects as they are cached: the API server's JSON without `managedFields`, decoded for each reader.

Of super objects the fields that others wrote are kept in their place (`syncer.core.field_ownership`).

A pod is some 3 KB so, and 25 KB as Python's dictionaries. Since each reader gets a copy of its own, no reader
can change what others see. Pods whose sides agree are compressed (`syncer.caches.pod_bodies`): most stay so
for long, and each reader's copy takes 10 us more.
"""

import re
from collections.abc import Collection, Iterable

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.resources import Key
from daemonkit.kube.store import Change, DecodeFailed
from daemonkit.kube.watch import BoundedParser
from syncer.caches import pod_bodies, shapes, weights
from syncer.core.field_ownership import ForeignFields, foreign_fields, foreign_keys
from syncer.core.objects import FOREIGN_FIELDS, Object
from syncer.core.pair import Pair
from tenancy import keys

# Names stand in paths, also of requests to the super cluster, and a tenant's API server may serve any text.
# API servers take any segment of a path as a name of some kinds, but no `.`, `..`, `/` and `%`.
_PATH_NAME = re.compile(r"""[!"$&-.0->@-~]{1,253}""")

MAX_PLANNED_VALUES = weights.MAX_WEIGHT
"""Of an object that goes down; some count as several."""

# The API server evicts these whatever budgets say (pkg/registry/core/pod/storage/eviction.go, canIgnorePDB).
_EVICTED_AT_ONCE = frozenset({"Succeeded", "Failed", "Pending"})
# A text of its own in a tuple.
_ADDRESS_BYTES = 64

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECT = msgspec.json.Decoder(Object)


class CachedMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The part of `metadata` by which caches are kept."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _ClaimRef(msgspec.Struct, frozen=True):
    namespace: str = ""


class _PodOrVolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    claim_ref: _ClaimRef | None = None


class _PodIp(msgspec.Struct, frozen=True):
    ip: str = ""


class _PodState(msgspec.Struct, frozen=True):
    phase: str = ""
    pod_ips: list[_PodIp] | None = msgspec.field(name="podIPs", default=None)


class OwnerAnnotations(msgspec.Struct, frozen=True):
    """Whose a super object is by its own word, also of one that cannot be read otherwise."""

    cluster: str = msgspec.field(name=keys.CLUSTER, default="")
    uid: str = msgspec.field(name=keys.UID, default="")


class _OwnedMetadata(msgspec.Struct, frozen=True):
    annotations: OwnerAnnotations | None = None


class OwnedObject(msgspec.Struct, frozen=True):
    """What is kept of a super object that cannot be read."""

    metadata: _OwnedMetadata


class _ClaimedSpec(msgspec.Struct, frozen=True, rename="camel"):
    claim_ref: _ClaimRef | None = None


class ClaimedObject(msgspec.Struct, frozen=True):
    """What is kept of a volume that cannot be read."""

    spec: _ClaimedSpec = _ClaimedSpec()

    @property
    def claim_namespace(self) -> str:
        return "" if self.spec.claim_ref is None else self.spec.claim_ref.namespace


class _TokenLabels(msgspec.Struct, frozen=True):
    pod_uid: str | None = msgspec.field(name=keys.POD_TOKENS, default=None)


class _LabelledMetadata(msgspec.Struct, frozen=True):
    labels: _TokenLabels | None = None


_ABSENT = msgspec.Raw(b"")


class _ManagedMetadata(CachedMetadata, frozen=True, rename="camel"):
    managed_fields: msgspec.Raw = _ABSENT
    foreign_fields: msgspec.Raw = msgspec.field(name=FOREIGN_FIELDS, default=_ABSENT)

    @property
    def identity(self) -> CachedMetadata:
        return CachedMetadata(self.name, self.namespace, self.uid, self.resource_version)


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMetadata


_MANAGED = msgspec.json.Decoder(_Managed)


class _SuperPodMetadata(_ManagedMetadata, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _SuperPod(msgspec.Struct, frozen=True):
    metadata: _SuperPodMetadata
    spec: _PodOrVolumeSpec = _PodOrVolumeSpec()
    status: _PodState | None = None


_SUPER_POD = msgspec.json.Decoder(_SuperPod)


class _Data(msgspec.Struct, frozen=True):
    data: dict[str, msgspec.Raw] | None = None


_DATA = msgspec.json.Decoder(_Data)


class CachedObject:
    """One object.

    `verified_with` is the version of its peer on the other side with which a plan had nothing to do, empty
    where there was none; None if that is not known. `node` is a pod's node, `tenant_uid` the UID
    of a super pod's tenant pod, `claim_namespace` the namespace of a volume's claim,
    `addresses` those that a pod holds in its network, `drain_node` the node whose drain a budget for a super
    pod can hold up; else they are empty. `json_bytes` is the length of the
    body as it came, `is_pod_tokens` whether it is a Secret that the syncer made for a pod's tokens.
    """

    __slots__ = (
        "_is_compressed",
        "_metadata_bytes",
        "addresses",
        "body",
        "claim_namespace",
        "drain_node",
        "is_pod_tokens",
        "json_bytes",
        "metadata",
        "node",
        "tenant_uid",
        "verified_with",
    )

    def __init__(self, metadata: CachedMetadata, body: bytes) -> None:
        self.metadata = metadata
        self.body = body
        self.json_bytes = len(body)
        self.is_pod_tokens = False
        self.node = ""
        self.drain_node = ""
        self.tenant_uid = ""
        self.claim_namespace = ""
        self.addresses: tuple[str, ...] = ()
        self.verified_with: str | None = None
        self._is_compressed = False
        self._metadata_bytes: int | None = None  # counted when it is asked for

    @property
    def version(self) -> str:
        return self.metadata.resource_version

    @property
    def size_bytes(self) -> int:
        """What it takes, at most: of what stands beside the body a server bounds nothing.

        A body is compressed later; what stands beside it stays as it was parsed.
        """
        beside = self._metadata_bytes
        if beside is None:
            beside = self._metadata_bytes = self._count_metadata()
        return len(self.body) + beside

    def _count_metadata(self) -> int:
        own = self.metadata
        texts = own.name, own.namespace, own.uid, own.resource_version, self.node, self.tenant_uid
        addresses = self.addresses
        size = len(self.claim_namespace) + sum(map(len, texts))
        return size + _ADDRESS_BYTES * len(addresses) + sum(map(len, addresses))

    def load(self) -> Object:
        """A copy of the object, for one reader."""
        return deep_json.decode(
            _OBJECT, pod_bodies.decompressed(self.body) if self._is_compressed else self.body
        )

    def data_keys(self) -> Collection[str]:
        """The keys of the `data` of a ConfigMap or Secret; the values are passed over."""
        return (deep_json.decode(_DATA, self.body).data or {}).keys()

    def compress(self) -> int:
        """Keep less of it in memory; returns how much less.

        Only for kinds whose `body` has no other reader than `load`.
        """
        if self._is_compressed:
            return 0
        before_bytes = len(self.body)
        self.body = pod_bodies.compressed(self.body)
        self._is_compressed = True
        return before_bytes - len(self.body)


class _EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    # A series that is made by core/v1 may lack it: the API server writes null then.
    last_observed_time: str | None = None


class _EventMetadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: str = ""


class _EventTimes(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _EventMetadata = _EventMetadata()
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _EventSeries | None = None


_EVENT_TIMES = msgspec.json.Decoder(_EventTimes)


def last_observed(event: CachedObject) -> str:
    """When an Event last occurred: RFC 3339 in UTC, as the API server writes it; empty if it is not known."""
    found = _EVENT_TIMES.decode(event.body)
    series = None if found.series is None else found.series.last_observed_time
    times = (series, found.last_timestamp, found.event_time, found.metadata.creation_timestamp)
    return max((each for each in times if each), default="")


def has_moved(cached: CachedObject | None, planned: str | None) -> bool:
    """Whether the cache has another version than a plan was made on; an object that is not there has none."""
    return ("" if cached is None else cached.version) != planned


def is_verified(cached: Pair[CachedObject]) -> bool:
    """Whether this pair has been planned and nothing was to be done; also for no object at all."""
    tenant, found = cached
    if tenant is not None:
        return tenant.verified_with == ("" if found is None else found.version)
    return found is None or found.verified_with == ""


def unreadable_keys(changes: Iterable[Change[CachedObject]]) -> frozenset[Key]:
    """The objects that are there and cannot be read any more. Their `Deleted` is no deletion."""
    return frozenset(each.key for each in changes if isinstance(each, DecodeFailed))


def _parse(
    raw: msgspec.Raw | bytes,
    *,
    kind: str | None = None,
    is_planned: bool = False,
    is_shared: bool = False,
) -> tuple[CachedObject, Object]:
    """The object, as it is cached and as it is.

    With a `kind` it has the shape of that. `is_planned`: and weighs no more than a plan may. `is_shared`:
    with its foreign fields.
    """
    own = deep_json.decode(_MANAGED, raw).metadata
    _check_names(own)
    # What is only skipped may have numbers that are out of range and bytes that are no UTF-8.
    if is_shared:
        value = deep_json.decode(_OBJECT, raw)
        foreign = foreign_fields(value, value["metadata"].get("managedFields"))
        body = _without_record(raw, own, foreign)
    else:
        # The record of writers may be half of an object.
        body = _without_record(raw, own, None)
        value = deep_json.decode(_OBJECT, body)
    if kind is not None:
        shapes.check(kind, value)
    if is_planned and len(body) > weights.FREE_BYTES and (excess := weights.excess(kind or "", value)):
        raise msgspec.ValidationError(excess)
    return CachedObject(own.identity, body), value


_RECORD = b'"managedFields":'


def _without_record(raw: msgspec.Raw | bytes, own: _ManagedMetadata, foreign: ForeignFields | None) -> bytes:
    """An object with the foreign fields in the place of its `managedFields`.

    The other fields stay as they were written: numbers have more than one form.
    """
    if foreign is None and not own.managed_fields and not own.foreign_fields:
        return bytes(raw)
    # It came with a field of the name that ours have.
    is_noted = bool(own.foreign_fields)
    note = b"" if foreign is None else msgspec.json.encode(foreign)
    record, content = bytes(own.managed_fields), bytes(raw)
    begin = content.find(_RECORD)
    end = begin + len(_RECORD) + len(record)
    # As API servers write it: a list, the last field of the metadata, once, and without spaces. To search for
    # the whole of it would take as long as to decode the pod.
    is_usual = record[:1] == b"[" and begin > 0 and content[begin - 1 : begin] == b"," and not is_noted
    if is_usual and content.endswith(record, begin, end) and content.find(_RECORD, begin + 1) < 0:
        place = b',"%b":%b' % (FOREIGN_FIELDS.encode(), note) if note else b""
        return b"".join((content[: begin - 1], place, content[end:]))
    fields = deep_json.decode(_RAW, raw)
    metadata = deep_json.decode(_RAW, fields["metadata"])
    metadata.pop("managedFields", None)
    metadata.pop(FOREIGN_FIELDS, None)
    if note:
        metadata[FOREIGN_FIELDS] = msgspec.Raw(note)
    fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(fields)


def _parse_super_pod(raw: msgspec.Raw | bytes) -> CachedObject:
    """As `_parse`, for Pods of the super cluster: it decodes only the fields that are kept."""
    pod = deep_json.decode(_SUPER_POD, raw)
    own = pod.metadata
    _check_names(own)
    labels, annotations = own.labels or {}, own.annotations or {}
    foreign = foreign_keys(own.managed_fields, labels, annotations)
    found = CachedObject(own.identity, _without_record(raw, own, foreign))
    found.tenant_uid = annotations.get(keys.UID, "")
    _note_pod(found, pod.spec, pod.status)
    if not own.deletion_timestamp and (pod.status is None or pod.status.phase not in _EVICTED_AT_ONCE):
        found.drain_node = found.node
    return found


def _check_names(identity: CachedMetadata) -> None:
    if not (_is_path_name(identity.name) and _is_path_name(identity.namespace)):
        raise msgspec.ValidationError("a name or a namespace that no path can have")


def _is_path_name(name: str) -> bool:
    """Also for no name: cluster-scoped objects have no namespace."""
    return not name or (name not in (".", "..") and _PATH_NAME.fullmatch(name) is not None)


def _with_spec(found: CachedObject, value: Object) -> CachedObject:
    owner = msgspec.convert(value["metadata"], _OwnedMetadata).annotations
    found.tenant_uid = "" if owner is None else owner.uid
    if "spec" in value:
        facts = msgspec.convert(value["spec"], _PodOrVolumeSpec)
        found.claim_namespace = "" if facts.claim_ref is None else facts.claim_ref.namespace
        has_address = facts.node_name and not facts.host_network and "status" in value
        _note_pod(found, facts, msgspec.convert(value["status"], _PodState) if has_address else None)
    return found


def _note_pod(found: CachedObject, spec: _PodOrVolumeSpec, status: _PodState | None) -> None:
    found.node = spec.node_name
    if status is None or not spec.node_name or spec.host_network:
        return
    # One that has ended holds none: they may be another pod's by now.
    if status.phase not in ("Succeeded", "Failed"):
        found.addresses = tuple(each.ip for each in status.pod_ips or ())


def _parse_secret(raw: msgspec.Raw | bytes) -> CachedObject:
    found, value = _parse(raw, is_shared=True)
    labels = msgspec.convert(value["metadata"], _LabelledMetadata).labels
    found.is_pod_tokens = labels is not None and labels.pod_uid is not None
    return found


parse: BoundedParser[CachedObject] = BoundedParser(lambda raw: _parse(raw)[0])
"""Parses an object of a list or a watch.

Raises msgspec.DecodeError without usable metadata, and as `deep_json.decode` does. What it returns can be
loaded.
"""

parse_with_spec: BoundedParser[CachedObject] = BoundedParser(lambda raw: _with_spec(*_parse(raw)))
"""As `parse`, for kinds whose node or claim matters: Pods, PersistentVolumes."""

parse_super: BoundedParser[CachedObject] = BoundedParser(lambda raw: _parse(raw, is_shared=True)[0])
"""As `parse`, for kinds that the syncer writes in the super cluster beside others."""

parse_super_pod: BoundedParser[CachedObject] = BoundedParser(_parse_super_pod)
"""As `parse_super` and `parse_with_spec`; of a pod only keys of metadata are taken away."""

parse_secret: BoundedParser[CachedObject] = BoundedParser(_parse_secret)
"""As `parse_super`, for Secrets: a tenant does not pay for those that the syncer makes."""


def parser_of(kind: str, most: int = deep_json.MAX_VALUES) -> BoundedParser[CachedObject]:
    """How a tenant's objects of a kind are parsed: they have the shape of their kind, or are unreadable.

    And so are those of more than `most` values.
    """
    is_planned = most <= weights.MAX_WEIGHT
    if kind in ("Pod", "PersistentVolume"):
        return BoundedParser(lambda raw: _with_spec(*_parse(raw, kind=kind, is_planned=is_planned)), most)
    return BoundedParser(lambda raw: _parse(raw, kind=kind, is_planned=is_planned)[0], most)
