# SPDX-License-Identifier: Apache-2.0
"""Labels, annotations and selectors on their way down and up. Pure.

Upstream's rules (docs/spec/virtualcluster.md#labels-and-annotations) with three differences. Keys match at
label boundaries: `notk8s.io/a` is not of `k8s.io`. Only keys that the SyncPolicy allows go down as they are.
And a label that is kept from super pods, as `app.kubernetes.io/name`, goes down under another key. Selectors
of it are translated in the same way.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from syncer.core.field_ownership import is_foreign_key
from syncer.core.objects import Object, metadata, without_server_fields
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.view import View
from syncer.policy.metadata_keys import KeyRules, KeyVerdict, is_of_any, is_open, label_verdict, rules_for
from tenancy import keys

LABEL_PREFIX = "tenant-label.vcnode.io/"
"""Of labels of tenants whose own keys must not stand in the super cluster."""

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The API server's label of each namespace: selectors of it keep the key, and their values are translated."""

# Keys of tenants that never pass, whatever the configuration: those by which the parts of the system
# recognise what the syncer wrote, and those of this project.
_RESERVED = ("tenancy.x-k8s.io", "transparency.tenancy.x-k8s.io", "vcnode.io")
_KUBERNETES = ("kubernetes.io", "k8s.io")
_MAX_NAME = 63


def domain_of(key: str) -> str:
    """The part before the slash; empty for a key without one."""
    domain, slash, _ = key.rpartition("/")
    return domain if slash else ""


def is_of(key: str, domain: str) -> bool:
    """Whether the key's domain is this one, or below it, at a label boundary."""
    own = domain_of(key)
    return own == domain or own.endswith("." + domain)


def has_prefix(key: str, prefix: str) -> bool:
    """Whether the key starts with a prefix of a VirtualCluster, which ends at a boundary of the key."""
    return key.startswith(prefix) and (
        prefix[-1:] in "/.-" or key[len(prefix) : len(prefix) + 1] in ("", "/")
    )


def _has_any(key: str, prefixes: tuple[str, ...]) -> bool:
    for prefix in prefixes:  # noqa: SIM110 - each key of each plan comes here: any() takes three times as long
        if has_prefix(key, prefix):
            return True
    return False


def is_reserved(key: str) -> bool:
    # A directive of a strategic merge patch, as `$patch`, could take our own keys from a super object.
    return key.startswith("$") or is_of_any(key, _RESERVED)


def is_closed(key: str, tenant: TenantCluster) -> bool:
    """Whether a key is none of a tenant's, whatever its policy: ours, or opaque by its VirtualCluster."""
    return is_reserved(key) or _has_any(key, tenant.opaque_prefixes)


def label_passes(key: str, view: View) -> bool:
    """Whether a tenant's label stands in the super cluster as it is."""
    verdict = label_verdict(key, view.policy.metadata, view.settings.opaque_domains)
    return verdict is KeyVerdict.ALLOWED and not is_closed(key, view.tenant)


def annotation_passes(key: str, rules: KeyRules, tenant: TenantCluster) -> bool:
    """Whether a tenant's annotation stands in the super cluster."""
    return rules.annotation(key) is KeyVerdict.ALLOWED and not is_closed(key, tenant)


def rules_of(kind: str, tenant: Object, view: View) -> KeyRules:
    """The rules for the annotations of an object."""
    domains = view.settings.opaque_domains
    return rules_for(kind, view.policy, domains, is_open=is_open(kind, tenant))


def goes_up(key: str, tenant: TenantCluster) -> bool:
    """Whether the super cluster's key is copied to the tenant's object."""
    prefixes = tenant.transparent_prefixes
    return key.startswith(keys.TRANSPARENT_PREFIX) or (bool(prefixes) and _has_any(key, prefixes))


def selectable_label(key: str) -> str:
    """The key under which a withheld label stands on super objects that selectors select."""
    name = key.replace("/", "__")
    if len(name) > _MAX_NAME or "__" in key:  # two keys must not become one
        name = f"{name[:50].rstrip('_.-')}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return LABEL_PREFIX + name


def translate_key(key: str, view: View) -> str:
    """The key of a label in the super cluster, for what selects pods.

    A key that comes up is the super pod's own.
    """
    is_super_own = goes_up(key, view.tenant) and not is_reserved(key)
    return key if is_super_own or label_passes(key, view) else selectable_label(key)


def translate_map(selector: Mapping[str, str], view: View) -> dict[str, str]:
    """A selector of the form `{key: value}`."""
    return {translate_key(key, view): value for key, value in selector.items()}


def translate_selector(selector: Mapping[str, Any], view: View) -> Object:
    """A meta/v1 LabelSelector over pods. Fields that are not known here stay."""
    found: Object = dict(selector)
    if isinstance(labels := found.get("matchLabels"), dict):
        found["matchLabels"] = translate_map(labels, view)
    if isinstance(expressions := found.get("matchExpressions"), list):
        found["matchExpressions"] = [
            {**each, "key": translate_key(str(each.get("key", "")), view)} if isinstance(each, dict) else each
            for each in expressions
        ]
    return found


def super_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of the super namespace for those of a tenant's: what its selectors can select by."""
    return {selectable_label(key): value for key, value in labels.items() if key != NAMESPACE_NAME}


def owner_annotations(tenant_object: Object, tenant: TenantCluster) -> dict[str, str]:
    """The annotations by which everyone knows whose a namespaced super object is."""
    meta = metadata(tenant_object)
    owners = meta.get("ownerReferences")
    return {
        keys.CLUSTER: tenant.key,
        keys.UID: str(meta.get("uid", "")),
        keys.NAMESPACE: str(meta.get("namespace", "")),
        keys.OWNER_REFERENCES: msgspec.json.encode(owners or None).decode(),
        keys.VC_NAME: tenant.vc_name,
        keys.VC_NAMESPACE: tenant.vc_namespace,
    }


def super_object(kind: str, tenant_object: Object, super_namespace: str, view: View) -> Object:
    """The start of a super object: a copy with the tenant's passing keys, ours, and the super namespace."""
    tenant = view.tenant
    rules = rules_of(kind, tenant_object, view)
    found = without_server_fields(tenant_object)
    meta = metadata(found)
    meta["namespace"] = super_namespace
    meta["labels"] = {
        key: value for key, value in (meta.get("labels") or {}).items() if label_passes(key, view)
    } | {keys.VC_NAME: tenant.vc_name, keys.VC_NAMESPACE: tenant.vc_namespace}
    meta["annotations"] = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if annotation_passes(key, rules, tenant)
    } | owner_annotations(tenant_object, tenant)
    return found


def metadata_patch(desired: Object, found: Object, tenant: TenantCluster, domains: tuple[str, ...]) -> Object:
    """The merge patch of metadata that brings `found` to `desired`; empty if nothing is to do.

    The tenant wins. Left alone: keys that go up, opaque keys, keys of the opaque domains, which are the super
    cluster's, and all that other clients wrote there. Reserved keys of `desired` are ours, and are always
    repaired.
    """
    patch: Object = {}
    own, there = metadata(desired), metadata(found)
    for field in ("labels", "annotations"):
        wanted, actual = own.get(field) or {}, there.get(field) or {}
        if wanted == actual:
            continue
        changes: Object = {
            key: value
            for key, value in wanted.items()
            if actual.get(key) != value and (is_reserved(key) or not goes_up(key, tenant))
        }
        for key in actual:
            if key not in wanted and not _is_super_own(found, field, key, tenant, domains):
                changes[key] = None
        if changes:
            patch[field] = changes
    return patch


def _is_super_own(
    found: Object, field: str, key: str, tenant: TenantCluster, domains: tuple[str, ...]
) -> bool:
    if key.startswith(LABEL_PREFIX) or key == keys.CONTAINERS:
        return False
    return (
        goes_up(key, tenant)
        or is_reserved(key)
        or _has_any(key, tenant.opaque_prefixes)
        # Whatever the kind: what the super cluster writes about its objects stands under these.
        or is_of_any(key, _KUBERNETES)
        or is_of_any(key, domains)
        or is_foreign_key(found, field, key)
    )


def transparent_patch(tenant_object: Object, found: Object, tenant: TenantCluster) -> Object:
    """The merge patch of the tenant's metadata with the super object's keys that go up; never a removal."""
    patch: Object = {}
    own, there = metadata(tenant_object), metadata(found)
    # Few keys of a super object begin so: the others need no look at how they go on.
    beginnings = (keys.TRANSPARENT_PREFIX, *tenant.transparent_prefixes)
    for field in ("labels", "annotations"):
        actual = own.get(field) or {}
        changes = {
            key: value
            for key, value in (there.get(field) or {}).items()
            if key.startswith(beginnings) and actual.get(key) != value and goes_up(key, tenant)
        }
        if changes:
            patch[field] = changes
    return patch
