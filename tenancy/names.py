# SPDX-License-Identifier: Apache-2.0
"""Names: the key of a tenant, the super namespace of a tenant's namespace, and their grammar.

The forward rule is upstream's (VirtualCluster `conversion/helper.go`, ToClusterKey and
ToSuperClusterNamespace), so that we meet the objects that its syncer made. Names cannot be parsed back: the
join of key and namespace is ambiguous, and a long one is cut. So the owner of a super object is read from its
annotations (`keys`), never parsed from a name.

A result that is not a valid name, that the super cluster reserves, or that two owners would share is refused
with a reason and never adjusted.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator

import msgspec

# RFC 1123 label, the grammar of namespaces and containers; and RFC 1123 subdomain, that of pods
# (k8s.io/apimachinery, pkg/util/validation).
LABEL_MAX_CHARS = 63
SUBDOMAIN_MAX_CHARS = 253
LABEL_PATTERN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = rf"{LABEL_PATTERN}(?:\.{LABEL_PATTERN})*"
_LABEL = re.compile(LABEL_PATTERN)
_SUBDOMAIN = re.compile(SUBDOMAIN_PATTERN)

# Kubernetes makes UUIDs, but the kubelet's static pods have 32 hex digits and the type is a plain
# string: enough to keep separators, blanks and control characters out.
_UID = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._]{0,126}[A-Za-z0-9])?")

HASHED_PREFIX_CHARS = 57
_HASH_CHARS = 5
_KEY_HASH_CHARS = 6

# Namespaces that every Kubernetes has for itself. A VirtualCluster in namespace `kube` of a
# Cluster API installation has the key `kube`, and its `system` would be the super `kube-system`.
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class Refused(msgspec.Struct, frozen=True):
    """What cannot be served, and why, in words for an operator's eyes."""

    reason: str


def is_dns_label(text: str) -> bool:
    """Whether `text` may name a namespace or a container (RFC 1123 label)."""
    return len(text) <= LABEL_MAX_CHARS and _LABEL.fullmatch(text) is not None


def is_pod_name(text: str) -> bool:
    """Whether `text` may name a pod (RFC 1123 subdomain)."""
    return len(text) <= SUBDOMAIN_MAX_CHARS and _SUBDOMAIN.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Whether `text` may be the uid of an object."""
    return _UID.fullmatch(text) is not None


def check_key(key: str) -> Refused | None:
    """Why `key` cannot be a cluster key, or None.

    It is the name of the tenant's root namespace in the super cluster and a label value on each of
    its pods, so it has to be an RFC 1123 label; upstream checks nothing.
    """
    if not is_dns_label(key):
        return Refused(f"cluster key {key[:80]!r} is not a DNS label of at most 63 characters")
    if key in PROTECTED_NAMESPACES:
        return Refused(f"cluster key {key} is a namespace of the super cluster itself")
    return None


def cluster_key(namespace: str, name: str, uid: str, cluster_namespace: str = "") -> str | Refused:
    """The key of the VirtualCluster `namespace/name`.

    `cluster_namespace` is its `status.clusterNamespace`; where it is set it is the key. Otherwise
    the key is `<namespace>-<first 6 hex digits of SHA-256 of the uid>-<name>`.
    """
    if cluster_namespace:
        key = cluster_namespace
    elif not (namespace and name and uid):
        return Refused("a cluster key needs the namespace, name and uid of the VirtualCluster")
    else:
        key = f"{namespace}-{_sha256_hex(uid)[:_KEY_HASH_CHARS]}-{name}"
    return check_key(key) or key


def super_namespace(key: str, tenant_namespace: str) -> str | Refused:
    """The namespace of the super cluster that stands for a tenant's `tenant_namespace`.

    `<key>-<namespace>`; if that is longer than 63 characters its first 57, a hyphen, and the first
    5 hex digits of the SHA-256 of the whole.
    """
    refusal = check_key(key)
    if refusal is not None:
        return refusal
    if not is_dns_label(tenant_namespace):
        return Refused(f"namespace {tenant_namespace[:80]!r} is not a DNS label")
    joined = f"{key}-{tenant_namespace}"
    if len(joined) > LABEL_MAX_CHARS:
        joined = f"{joined[:HASHED_PREFIX_CHARS]}-{_sha256_hex(joined)[:_HASH_CHARS]}"
    if joined in PROTECTED_NAMESPACES:
        return Refused(f"{joined} is a namespace of the super cluster itself")
    return joined


def overlaps(key: str, other: str) -> bool:
    """Whether two tenants of these keys could have one super namespace.

    With `a` and `a-b`: namespace `b-c` of the first and `c` of the second are both `a-b-c`. And of keys that
    are cut, the 5 hex digits alone differ: one of a million namespaces has those of another.
    """
    return (
        key == other
        or key.startswith(f"{other}-")
        or other.startswith(f"{key}-")
        or (len(key) >= HASHED_PREFIX_CHARS and _cut(key) == _cut(other))
    )


def overlapping(keys: Iterable[str]) -> frozenset[str]:
    """The keys that overlap another of these keys that is shorter, or comes first. Without them no two do."""
    all_keys = frozenset(keys)
    found = {key for key in all_keys if not all_keys.isdisjoint(_prefixes(key))}
    first: dict[str, str] = {}
    for key in sorted(all_keys, key=lambda each: (len(each), each)):
        if len(key) >= HASHED_PREFIX_CHARS and first.setdefault(_cut(key), key) != key:
            found.add(key)
    return frozenset(found)


def is_reserved_name(name: str, key: str, keys: Collection[str]) -> bool:
    """Whether a super namespace's name is of another tenant than that with `key`, by all tenants' `keys`.

    It is that one's whose key is the longest with which the name begins: `a-b-c` is of `a-b`, not of `a`.
    """
    return any(len(begin) > len(key) and begin in keys for begin in (*_prefixes(name), name))


def _prefixes(text: str) -> Iterator[str]:
    """The texts that a hyphen follows."""
    return (text[:at] for at, each in enumerate(text) if each == "-")


def _cut(key: str) -> str:
    return key[:HASHED_PREFIX_CHARS]


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
