# SPDX-License-Identifier: Apache-2.0
"""What becomes of the keys of a tenant's labels and annotations: allow-lists, for all kinds. Pure.

A key is an order to whatever controller of the super cluster reads it, with the rights of that controller. So
a key goes down if it is known that no program acts on it, or if the operator allows it. What asks for
protection, as authentication on an Ingress does, has the object refused: without it the object would be open
to everyone. docs/spec/sync-policy.md#labels-and-annotations lists the keys with the reasons.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from syncer.core.objects import Object
from syncer.core.plan import Change, Refusal
from syncer.policy.patterns import Patterns
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import NO_NAMES, MetadataPolicy, SyncPolicy

LABELS = "labels"
ANNOTATIONS = "annotations"

# What has more in the super cluster is not read there (`daemonkit.kube.object_limits`): it would be in no
# plan, no check and no budget. Ours are some ten, and some are for those of the super cluster's programs.
MAX_LABELS = 990
MAX_LABEL_BYTES = 126 << 10
# Of each label: what JSON writes beside key and value, and the prefix that pods' and namespaces' labels get.
_LABEL_BYTES = 32

# With the reason: none of them means anything to what runs in the super cluster.
HARMLESS: tuple[tuple[str, str], ...] = (
    ("arktos.futurewei.com/network", "names a network of the tenant's own"),
    ("checksum/*", "Helm charts restart pods by it; no program reads its value"),
    ("helm.sh/*", "Helm's client alone reads it, in the control plane that it changes"),
    ("meta.helm.sh/*", "Helm's client alone reads it, and together with a label that does not go down"),
)

# Keys that stay in the tenant and that no program misses below, with the reason. They are not reported: most
# objects have some of them, and each Helm chart would be an Event for each of its objects.
UNREPORTED: tuple[tuple[str, str], ...] = (
    ("app.kubernetes.io/*", "tools of the super cluster take objects for their own by it (Argo CD, Helm)"),
    ("apps.kubernetes.io/*", "written and read by the tenant's controllers"),
    ("argocd.argoproj.io/*", "an Argo CD of the super cluster would take the object for one of its own"),
    ("batch.kubernetes.io/*", "written and read by the tenant's controllers"),
    ("control-plane.alpha.kubernetes.io/*", "leader election in the tenant"),
    ("controller.kubernetes.io/*", "read by the tenant's controllers"),
    ("deployment.kubernetes.io/*", "written and read by the tenant's controllers"),
    ("endpoints.kubernetes.io/*", "written by the tenant's controllers"),
    ("endpointslice.kubernetes.io/*", "written by the tenant's controllers"),
    ("*.toolkit.fluxcd.io/*", "a Flux of the super cluster would take the object for one of its own"),
    (
        "kubectl.kubernetes.io/*",
        "kubectl alone reads it; last-applied-configuration repeats the whole object",
    ),
    ("kubernetes.io/change-cause", "text for people"),
    ("kubernetes.io/config.*", "of static pods; refused on pods"),
    ("kubernetes.io/description", "text for people"),
    ("kubernetes.io/enforce-mountable-secrets", "enforced by the tenant's API server"),
    ("kubernetes.io/limit-ranger", "written by the tenant's admission"),
    ("kubernetes.io/metadata.name", "written by the API server of each cluster"),
    ("kubernetes.io/service-account.*", "the token of a service account goes down as an opaque Secret"),
    ("kubernetes.io/service-name", "written anew for the super cluster"),
    ("pod-security.kubernetes.io/*", "enforced by the tenant's API server"),
    ("prometheus.io/*", "a Prometheus of the super cluster would store what tenants let it scrape"),
    ("pv.kubernetes.io/*", "written by the tenant's controllers"),
    ("service.kubernetes.io/headless", "written by the tenant's controllers"),
    ("statefulset.kubernetes.io/*", "written by the tenant's controllers"),
    ("volume.beta.kubernetes.io/storage-provisioner", "written by the tenant's controllers"),
    ("volume.kubernetes.io/*", "written by the tenant's controllers"),
)

# An Ingress works without them as far as safety goes, and they are reported. All others of an
# Ingress that do not go down have it refused: they may be what keeps people out.
HARMLESS_WITHOUT: tuple[tuple[str, str], ...] = (
    ("*/client-body-buffer-size", "a size"),
    ("*/client-header-buffer-size", "a size"),
    ("*/proxy-body-size", "a size"),
    ("*/proxy-buffer-size", "a size"),
    ("*/proxy-buffering", "a size"),
    ("*/proxy-buffers-number", "a size"),
    ("*/proxy-connect-timeout", "a time"),
    ("*/proxy-next-upstream*", "what is tried again"),
    ("*/proxy-read-timeout", "a time"),
    ("*/proxy-send-timeout", "a time"),
)

# Of one kind, and judged by its own rules.
_NONE_JUDGED = frozenset[str]()
_JUDGED: dict[str, frozenset[str]] = {
    "Ingress": frozenset({"kubernetes.io/ingress.class"}),
    "PersistentVolumeClaim": frozenset({"volume.beta.kubernetes.io/storage-class"}),
}
_HARMLESS = Patterns(tuple(key for key, _ in HARMLESS))
_UNREPORTED = Patterns(tuple(key for key, _ in UNREPORTED))
_HARMLESS_WITHOUT = Patterns(tuple(key for key, _ in HARMLESS_WITHOUT))
_REACHABLE_TYPES = ("NodePort", "LoadBalancer")


class KeyVerdict(enum.Enum):
    """What becomes of a key. Two stay in the tenant; labels that are selected by are renamed."""

    ALLOWED = "allowed"
    UNREPORTED = "unreported"
    REPORTED = "reported"
    REFUSED = "refused"


class KeyRules(msgspec.Struct, frozen=True):
    """The rules for annotations of one kind, of which a policy has the operator's part.

    `field` is that of the SyncPolicy which lets annotations down. `is_open` is for objects that others can
    reach: an annotation of theirs that stays may be what keeps people out.
    """

    metadata: MetadataPolicy
    allowed: Patterns
    refused: Patterns
    judged: frozenset[str]
    field: str
    opaque_domains: tuple[str, ...]
    is_open: bool = False

    def annotation(self, key: str) -> KeyVerdict:
        """The verdict of an annotation."""
        if (
            key in self.judged
            or self.allowed.match(key)
            or (self.metadata.allowed_annotations.match(key) and not self.refused.match(key.lower()))
        ):
            return KeyVerdict.ALLOWED
        lower = key.lower()
        if self.refused.match(lower):
            return KeyVerdict.REFUSED
        if _is_harmless(key, self.metadata, self.opaque_domains):
            return KeyVerdict.ALLOWED
        if _UNREPORTED.match(key):
            return KeyVerdict.UNREPORTED
        if self.is_open and not _HARMLESS_WITHOUT.match(lower):
            return KeyVerdict.REFUSED
        return KeyVerdict.REPORTED


def label_verdict(key: str, policy: MetadataPolicy, opaque_domains: tuple[str, ...]) -> KeyVerdict:
    """The verdict of a label. None is refused: no tenant's safety hangs on a label."""
    if policy.allowed_labels.match(key) or _is_harmless(key, policy, opaque_domains):
        return KeyVerdict.ALLOWED
    return KeyVerdict.UNREPORTED if _UNREPORTED.match(key) else KeyVerdict.REPORTED


def _is_harmless(key: str, policy: MetadataPolicy, opaque_domains: tuple[str, ...]) -> bool:
    """Whether a key of no domain, or one that is known. `io.containerd.x` has a domain, without a slash."""
    if not ("/" in key or "." in key):
        return not policy.withheld_keys.match(key)
    return _HARMLESS.match(key) and not is_of_any(key, opaque_domains)


def is_of_any(key: str, domains: tuple[str, ...]) -> bool:
    """Whether the key's domain is one of these, or below one."""
    domain, slash, _ = key.rpartition("/")
    if not slash:
        return False
    for each in domains:  # each key of each plan comes here: a generator takes three times as long
        if domain.endswith(each) and (len(domain) == len(each) or domain[-len(each) - 1] == "."):
            return True
    return False


def rules_for(kind: str, policy: SyncPolicy, opaque_domains: tuple[str, ...], *, is_open: bool) -> KeyRules:
    """The rules for a kind."""
    own, refused, field = NO_NAMES, NO_NAMES, "metadata.allowedAnnotations"
    if kind == "Pod":
        pods, field = policy.pods, "pods.allowedAnnotations"
        own, refused = pods.allowed_annotations, pods.denied_annotations
    elif kind == "Service":
        services, field = policy.services, "services.allowedAnnotations"
        own, refused = services.allowed_annotations, services.denied_annotations
    elif kind == "Ingress":
        ingresses, field = policy.ingresses, "ingresses.allowedAnnotations"
        own, refused = ingresses.allowed_annotations, ingresses.denied_annotations
    judged = _JUDGED.get(kind, _NONE_JUDGED)
    return KeyRules(policy.metadata, own, refused, judged, field, opaque_domains, is_open)


def is_open(kind: str, tenant: Object) -> bool:
    """Whether a tenant's object is to be reached by others than its own pods."""
    if kind == "Ingress":
        return True
    if kind != "Service":
        return False
    spec = tenant.get("spec")
    if type(spec) is not dict:
        return False
    return spec.get("type") in _REACHABLE_TYPES or bool(spec.get("externalIPs"))


IsPassedOver = Callable[[str], bool]
"""Whether a key is no author's: it is the syncer's, comes up, or stays by the VirtualCluster's own words."""


def too_many_labels(labels: Mapping[str, Any]) -> str:
    """Why a super object with these labels could not be read any more; empty if it could.

    It has some more of ours, and a label may have a longer key there.
    """
    if len(labels) > MAX_LABELS:
        return f"more than {MAX_LABELS} labels"
    size_bytes = sum(len(key) + len(text_of(value)) + _LABEL_BYTES for key, value in labels.items())
    return f"labels of more than {MAX_LABEL_BYTES} bytes in all" if size_bytes > MAX_LABEL_BYTES else ""


def refusals(tenant: Object, rules: KeyRules, is_passed_over: IsPassedOver) -> tuple[Refusal, ...]:
    """The annotations that have the object refused. `tenant` is as its author wrote it."""
    found = RefusalList()
    meta = found.fields("metadata", tenant.get("metadata"))
    if what := too_many_labels(found.fields("metadata.labels", meta.get(LABELS))):
        found.add("metadata.labels", what)
    for key in found.fields("metadata.annotations", meta.get(ANNOTATIONS)):
        if rules.annotation(text_of(key)) is KeyVerdict.REFUSED and not is_passed_over(key):
            found.add(f"metadata.annotations[{shown(key)}]", "this annotation", rules.field)
    return found.done()


def changes(
    tenant: Object, rules: KeyRules, is_passed_over: IsPassedOver, *, renames_labels: bool = False
) -> Iterator[Change]:
    """The keys that stay in the tenant and that are reported.

    `renames_labels`: this kind's labels go down under another key, and nothing of them is missing below.
    """
    meta = tenant.get("metadata")
    if type(meta) is not dict:
        return
    labels, annotations = meta.get(LABELS), meta.get(ANNOTATIONS)
    if type(labels) is dict and not renames_labels:
        for key in labels:
            verdict = label_verdict(text_of(key), rules.metadata, rules.opaque_domains)
            if verdict is KeyVerdict.REPORTED and not is_passed_over(key):
                yield _stays(LABELS, key, "metadata.allowedLabels")
    if type(annotations) is dict:
        for key in annotations:
            if rules.annotation(text_of(key)) is KeyVerdict.REPORTED and not is_passed_over(key):
                yield _stays(ANNOTATIONS, key, rules.field)


def _stays(field: str, key: str, allowed_by: str) -> Change:
    how = f"stays in this cluster, as SyncPolicy field spec.{allowed_by} does not allow it below"
    return Change(f"metadata.{field}[{shown(key)}]", how)
