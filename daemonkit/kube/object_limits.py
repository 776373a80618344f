# SPDX-License-Identifier: Apache-2.0
"""The size limits that each watched kind of object must meet before it is decoded in full. Pure.

Tenants write objects, and an API server accepts lists as long as a request. Each node that watches such an
object decodes it at each event, and what is computed from it may cost even more. So the decoder measures the
bytes first. An object above a limit is *too large*: neither absent nor empty. The store keeps its name, and
the daemon computes everything else without it.

- An object of up to `FREE_BYTES` (a pod: of less) is decoded without measuring: its lists are short.
- An object of more than `MAX_OBJECT_BYTES` is too large as a whole.
- In any other object the lists, maps and strings that some daemon decodes are measured, first in bytes and
  then in entries. All other fields are skipped, as the decoder skips them.

Each limit is the one that Kubernetes validates, or far above honest use where Kubernetes validates none.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.resources import (
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Resource,
)

# Most pods and Services are below 10 KB. It holds a thousand entries of a list, and no code of ours
# takes longer than a millisecond for so many.
FREE_BYTES = 16 << 10
# etcd takes 1.5 MiB of protobuf (--max-request-bytes). As JSON that is up to three times as much for
# lists of small values; only escapes make more of it.
MAX_OBJECT_BYTES = 5 << 20

# Of what is bounded to less an object's own bytes and commas say nothing, but few objects have it.
_USUAL_BYTES, _USUAL_ENTRIES = 64 << 10, 500

TOO_LARGE = "too large: "
"""How every reason begins."""


class Limit(msgspec.Struct, frozen=True):
    """Of the list, map or text at `path`: bytes of its JSON, and entries of a list or map."""

    path: str
    max_bytes: int
    max_entries: int | None = None

    @property
    def quiet_bytes(self) -> int:
        """With no more bytes than this it exceeds nothing: each entry has one, and a comma."""
        return self.max_bytes if self.max_entries is None else min(self.max_bytes, 2 * self.max_entries)

    @property
    def is_usual(self) -> bool:
        """Whether most objects have too few bytes and commas to exceed it."""
        has_entries = self.max_entries is None or self.max_entries >= _USUAL_ENTRIES
        return has_entries and self.max_bytes >= _USUAL_BYTES

    @property
    def name(self) -> bytes:
        """What is in each object that has something at the path, unless it is written with escapes."""
        names = self.path.split(".")
        return names[min(1, len(names) - 1)].encode()


_METADATA = (
    # Keys and values are bounded one by one (317 and 63 characters), their number is not.
    Limit("metadata.labels", 128 << 10, 1_000),
    # 256 KiB of keys and values (apimachinery, TotalAnnotationSizeLimitB); JSON writes some
    # characters in six.
    Limit("metadata.annotations", 6 * (256 << 10), 4_096),
)

_SERVICE = (
    # As many as a slice of it may have.
    Limit("spec.ports", 4 << 20, 20_000),
    # An operator routes each of these to the nodes by hand.
    Limit("spec.externalIPs", 64 << 10, 1_000),
    # Published lists of clouds' and countries' ranges have some thousands.
    Limit("spec.loadBalancerSourceRanges", 256 << 10, 5_000),
    # One for each family (core/v1).
    Limit("spec.clusterIPs", 1 << 10, 2),
    Limit("spec.ipFamilies", 1 << 10, 2),
    Limit("status.loadBalancer.ingress", 512 << 10, 1_000),
)

_ENDPOINT_SLICE = (
    # discovery/v1: maxEndpoints; each with up to 100 addresses, of which the first is used.
    Limit("endpoints", MAX_OBJECT_BYTES, 1_000),
    # discovery/v1: maxPorts.
    Limit("ports", 4 << 20, 20_000),
)

_POD = (
    # core/v1: 3 servers, 32 search domains of 2 048 characters together.
    Limit("spec.dnsConfig.nameservers", 1 << 10, 3),
    Limit("spec.dnsConfig.searches", 16 << 10, 32),
    # The API server bounds nothing here. A resolver knows some 15 options, and kata-bridge takes a
    # resolv.conf of 64 KiB.
    Limit("spec.dnsConfig.options", 64 << 10, 256),
    # The scale tests of Kubernetes have some tens.
    Limit("spec.containers", 4 << 20, 1_000),
    Limit("spec.initContainers", 4 << 20, 1_000),
    Limit("spec.ephemeralContainers", 4 << 20, 1_000),
    # Some of the kubelet's, and one for each readiness gate.
    Limit("status.conditions", 512 << 10, 500),
)

_NETWORK = (
    # As much as a condition's message may have (meta/v1).
    Limit("status.message", 6 * (32 << 10)),
    Limit("status.phase", 1 << 10),
    Limit("status.dnsServiceIP", 1 << 10),
    Limit("spec.type", 1 << 10),
)

_VIRTUAL_CLUSTER = (
    # A domain has 253 characters.
    Limit("spec.clusterDomain", 4 << 10),
    Limit("status.clusterNamespace", 4 << 10),
)


class ObjectLimits:
    """The limits of one kind. A path that is missing in an object is not measured."""

    def __init__(self, limits: Iterable[Limit], free_bytes: int = FREE_BYTES) -> None:
        limits = tuple(limits)
        self._free_bytes = free_bytes
        self._searched_names = tuple({each.name for each in limits if not each.is_usual})
        tree: dict[str, Any] = {}
        groups: dict[tuple[str, ...], list[tuple[str, int, Limit]]] = {}
        for limit in limits:
            *above, last = limit.path.split(".")
            place = tree
            for name in above:
                place = place.setdefault(name, {})
            place[last] = None
            groups.setdefault(tuple(above), []).append((last, limit.quiet_bytes, limit))
        # By the object that has the fields: most objects lack most of them.
        self._groups = tuple((above, tuple(found)) for above, found in groups.items())
        self._outline: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_outline(tree))
        self._list = msgspec.json.Decoder(list[msgspec.Raw])
        self._map = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def excess(self, raw: msgspec.Raw | bytes) -> str | None:
        """The limit that an object exceeds, or None. The same excess gives the same message."""
        size = len(raw)
        if size <= self._free_bytes:
            return None
        if size > MAX_OBJECT_BYTES:
            return f"{TOO_LARGE}it has more than {MAX_OBJECT_BYTES} bytes"
        if size <= _USUAL_BYTES and self._is_usual(bytes(raw)):
            return None
        try:
            outline = deep_json.decode(self._outline, raw)
            for above, limits in self._groups:
                part = _at(outline, above)
                if part is None:
                    continue
                for name, quiet_bytes, limit in limits:
                    found = getattr(part, name)
                    if len(found) > quiet_bytes and (excess := self._excess_of(limit, found)):
                        return excess
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the full decoding reports the error with its place
        return None

    def _is_usual(self, content: bytes) -> bool:
        """Whether nothing in these few bytes can exceed a limit: a list has an entry more than commas."""
        if deep_json.has_as_many(content, b",", _USUAL_ENTRIES) or b"\\u" in content:
            return False
        for name in self._searched_names:  # noqa: SIM110 - one or two, and a generator takes longer
            if name in content:
                return False
        return True

    def _excess_of(self, limit: Limit, found: msgspec.Raw) -> str | None:
        if len(found) > limit.max_bytes:
            return f"{TOO_LARGE}{limit.path} has more than {limit.max_bytes} bytes"
        if limit.max_entries is not None and self._has_more(found, limit.max_entries):
            return f"{TOO_LARGE}{limit.path} has more than {limit.max_entries} entries"
        return None

    def _has_more(self, found: msgspec.Raw, most: int) -> bool:
        """Whether a list or a map has more entries than this. Nearly all have too few commas."""
        content = bytes(found)
        if len(content) - len(content.translate(None, b",")) < most:
            return False
        match content[:1]:
            case b"[":
                return len(deep_json.decode(self._list, content)) > most
            case b"{":
                return len(deep_json.decode(self._map, content)) > most
            case _:
                return False


_NOTHING = msgspec.Raw(b"")


def _outline(tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A Struct of the tree, whose leaves are undecoded bytes."""
    fields: list[tuple[str, Any, Any]] = [
        (name, msgspec.Raw, _NOTHING) if below is None else (name, _outline(below) | None, None)
        for name, below in tree.items()
    ]
    return msgspec.defstruct("Outline", fields, frozen=True)


def _at(outline: Any, path: tuple[str, ...]) -> Any:
    """What has the fields; None if the object lacks it."""
    for name in path:
        outline = getattr(outline, name)
        if outline is None:
            return None
    return outline


_OF_ALL = ObjectLimits(_METADATA)
_BY_KIND: Mapping[str, ObjectLimits] = MappingProxyType(
    {
        str(SERVICES): ObjectLimits(_METADATA + _SERVICE),
        str(ENDPOINT_SLICES): ObjectLimits(_METADATA + _ENDPOINT_SLICE),
        # Below this a pod has no room for too many options: every decision reads each option.
        str(PODS): ObjectLimits(_METADATA + _POD, free_bytes=3 << 10),
        str(NAMESPACES): _OF_ALL,
        str(NODES): _OF_ALL,
        str(VIRTUAL_CLUSTERS): ObjectLimits(_METADATA + _VIRTUAL_CLUSTER),
        "networks.arktos.futurewei.com": ObjectLimits(_METADATA + _NETWORK),
    }
)


def limits_of(resource: Resource) -> ObjectLimits:
    """The limits of a kind; an unlisted kind has those of metadata alone.

    The API server accepts at most 1 MiB of Secrets and ConfigMaps.
    """
    return _BY_KIND.get(str(resource), _OF_ALL)
