# SPDX-License-Identifier: Apache-2.0
"""Labels and annotations of super pods. Pure.

Three groups of a pod's keys are no tenant's to set: those that are reserved, those that daemons of the super
cluster believe, and the copies of the tenant's metadata that its downward API volumes read.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from daemonkit.kube.resources import PODS
from syncer.core.objects import (
    SERVER_FIELDS,
    Object,
    SyncedKind,
    annotations_of,
    copied,
    metadata,
)
from syncer.core.view import View
from syncer.kinds.metadata import (
    annotation_passes,
    goes_up,
    is_closed,
    is_of,
    is_reserved,
    label_passes,
    metadata_patch,
    owner_annotations,
    rules_of,
    selectable_label,
)
from tenancy import keys

KIND = SyncedKind(PODS, "Pod")

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")

# The limit of the API server for all annotations of an object (apimachinery, TotalAnnotationSizeLimitB).
MAX_ANNOTATION_BYTES = 256 * 1024

_MAX_NAME = 63
# Not as they are in the tenant.
_NOT_COPIED = SERVER_FIELDS | {"labels", "annotations"}


class MetadataRules:
    """Which of a tenant's keys stand in the super cluster as they are."""

    __slots__ = ("_rules", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._rules = rules_of(KIND.kind, {}, view)

    def label_passes(self, key: str) -> bool:
        return label_passes(key, self._view)

    def annotation_passes(self, key: str) -> bool:
        passes = annotation_passes(key, self._rules, self._view.tenant)
        return passes and not is_super_annotation(key)

    def super_label(self, key: str) -> str | None:
        """The key of a label on the super pod; None if it is on none."""
        if self.label_passes(key):
            return key
        if is_closed(key, self._view.tenant) or goes_up(key, self._view.tenant):
            return None
        return selectable_label(key)


def is_super_annotation(key: str) -> bool:
    """Whether the runtime or our daemons act on a pod's annotation: the super cluster's alone.

    NETWORK_READINESS is the network provider's, who holds back the containers with it.
    """
    return (
        key in (keys.NETWORK_READINESS, keys.REQUIRED_PLUGINS)
        or is_of(key, keys.REQUIRED_PLUGINS)
        or is_reserved(key)
    )


def split_field_path(path: str) -> tuple[str, str]:
    """A field path with a subscript, as `metadata.labels['a']`, as (field, subscript); else (path, "")."""
    field, opening, rest = path.partition("['")
    return (field, rest[:-2]) if opening and rest.endswith("']") else (path, "")


def own_containers(pod: Object) -> Iterator[Object]:
    """The containers of all three lists."""
    spec = pod.get("spec") or {}
    for field in CONTAINER_LISTS:
        yield from spec.get(field) or ()


def mounted_key(field: str, key: str) -> str:
    """The annotation that holds a label or annotation of the tenant, for its downward API volume alone."""
    name = f"{field.rpartition('.')[2]}.{key.replace('/', '__')}"
    if len(name) > _MAX_NAME or "__" in key:  # two keys must not become one
        name = f"{name[:46].rstrip('_.-')}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return keys.MOUNTED_METADATA_PREFIX + name


def mounted_path(path: str, rules: MetadataRules) -> str:
    """The field path by which a downward API volume of the super pod reads what the tenant's names."""
    found = _MOUNTED_FIELDS.get(path)
    if found is not None:
        return f"metadata.annotations['{found}']"
    field, key = split_field_path(path)
    if field == "metadata.labels":
        label = rules.super_label(key)
        if label is not None:
            return f"metadata.labels['{label}']"
    elif field != "metadata.annotations" or rules.annotation_passes(key):
        return path
    return f"metadata.annotations['{mounted_key(field, key)}']"


_MOUNTED_FIELDS = {
    "metadata.namespace": keys.NAMESPACE,
    "metadata.uid": keys.UID,
    "metadata.labels": keys.MOUNTED_LABELS,
    "metadata.annotations": keys.MOUNTED_ANNOTATIONS,
}


def downward_items(pod: Object) -> Iterator[Object]:
    """The items of downward API volumes that name a field, projected ones included."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        sources: list[Any] = [volume]
        if isinstance(projected := volume.get("projected"), dict):
            sources.extend(projected.get("sources") or ())
        for source in sources:
            if isinstance(downward := source.get("downwardAPI"), dict):
                yield from (item for item in downward.get("items") or () if item.get("fieldRef"))


def _mounted_annotations(tenant: Object, rules: MetadataRules) -> dict[str, str]:
    """The annotations that downward API volumes of the super pod read, with the tenant's values now."""
    found = {}
    # A pod may name one field in each of its items, and a field may be as large as the pod.
    for path in dict.fromkeys(str(each["fieldRef"].get("fieldPath", "")) for each in downward_items(tenant)):
        field, key = split_field_path(path)
        values = metadata(tenant).get(field.removeprefix("metadata.")) or {}
        if path == "metadata.labels":
            found[keys.MOUNTED_LABELS] = format_map(values, MAX_ANNOTATION_BYTES)
        elif path == "metadata.annotations":
            found[keys.MOUNTED_ANNOTATIONS] = format_map(values, MAX_ANNOTATION_BYTES)
        elif key in values and mounted_key(field, key) in mounted_path(path, rules):
            found[mounted_key(field, key)] = values[key]
    return found


def format_map(values: dict[str, str], max_chars: int) -> str:
    """Labels or annotations as the kubelet writes them to a file (pkg/fieldpath, FormatMap).

    It ends once it has more than `max_chars`: no node takes what is larger.
    """
    lines, left = [], max_chars
    for key in sorted(values):
        if left < 0:
            break
        # Quoting makes no text shorter.
        value = values[key][: left + 1]
        lines.append(f"{key}={quote(value)}")
        left -= len(lines[-1]) + 1
    return "\n".join(lines)


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def quote(text: str) -> str:
    """Text as Go's `%q` writes it."""
    if text.isprintable():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    # A character that occurs again is looked up.
    quoted = {char: _quoted(char) for char in set(text)}
    return '"' + "".join(map(quoted.__getitem__, text)) + '"'


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def super_metadata(tenant: Object, super_namespace: str, view: View) -> Object:
    """The metadata of the super pod."""
    source = metadata(tenant)
    rules = MetadataRules(view)
    meta = {name: copied(each) for name, each in source.items() if name not in _NOT_COPIED}
    meta["namespace"] = super_namespace
    labels = {
        passing: value
        for key, value in (source.get("labels") or {}).items()
        if (passing := rules.super_label(key)) is not None
    }
    cluster = view.tenant
    meta["labels"] = labels | {
        keys.CLUSTER: cluster.key,
        keys.VC_NAME: cluster.vc_name,
        keys.VC_NAMESPACE: cluster.vc_namespace,
    }
    annotations = {
        key: value for key, value in (source.get("annotations") or {}).items() if rules.annotation_passes(key)
    }
    annotations |= _mounted_annotations(tenant, rules) | owner_annotations(tenant, cluster)
    annotations[keys.CONTAINERS] = containers_annotation(tenant)
    if gates := (tenant.get("spec") or {}).get("schedulingGates"):
        annotations[keys.SCHEDULING_GATES] = ",".join(str(gate.get("name")) for gate in gates)
    if plugins := view.settings.required_plugins:
        annotations[keys.REQUIRED_PLUGINS] = f"[{', '.join(plugins)}]"
    meta["annotations"] = annotations
    return meta


def containers_annotation(pod: Object) -> str:
    """The names of all containers."""
    return ",".join(str(each.get("name")) for each in own_containers(pod))


def annotation_bytes(meta: Object) -> int:
    """The size of all annotations as the API server counts it."""
    return sum(len(key) + len(value.encode()) for key, value in meta["annotations"].items())


def pod_metadata_patch(wanted: Object, found: Object, view: View) -> Object:
    """The merge patch of metadata of an existing super pod; empty if nothing is to do."""
    annotations = annotations_of(found)
    own = dict(wanted["annotations"])
    if keys.CONTAINERS not in annotations and containers_annotation(found) == own[keys.CONTAINERS]:
        # A pod of upstream's syncer in which all containers are the tenant's needs no list of them.
        del own[keys.CONTAINERS]
    # Gates that went down once are remembered: the super cluster may have gates of its own.
    own.pop(keys.SCHEDULING_GATES, None)
    patch = metadata_patch(
        {"metadata": {**wanted, "annotations": own}}, found, view.tenant, view.settings.opaque_domains
    )
    changes = patch.get("annotations") or {}
    for key in annotations:
        if key in own:
            continue
        if key.startswith(keys.MOUNTED_METADATA_PREFIX) or (own_plugins(view) and _is_narrower(key)):
            changes[key] = None
        elif is_super_annotation(key):
            changes.pop(key, None)
    if changes:
        patch["annotations"] = changes
    else:
        patch.pop("annotations", None)
    return patch


def own_plugins(view: View) -> bool:
    """Whether the syncer decides which plugins a pod requires, and so no narrower key may."""
    return bool(view.settings.required_plugins)


def _is_narrower(key: str) -> bool:
    return is_of(key, keys.REQUIRED_PLUGINS)
