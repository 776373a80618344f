# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions come up by label: validation rules and selectable fields too. Pure.

The status is each API server's own. No field leads to a deletion: it would take all custom resources along.

What is only true in the super cluster stays there. A conversion webhook that is a Service there cannot be
called from a tenant: the version that is stored is served alone, which needs no conversion. A version in
which a tenant's API server has stored objects stays in its definition, or no update would be taken.
"""

from daemonkit.kube.resources import Resource
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Change
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

_RESOURCE = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
KIND = SyncedKind(_RESOURCE, "CustomResourceDefinition")


def fit(desired: Object, tenant: Object | None) -> tuple[Change, ...]:
    """Make the copy of a definition one that works in a tenant; see `published.Fitted`."""
    spec = desired.get("spec")
    versions = spec.get("versions") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(versions, list):
        return ()
    versions = [each for each in versions if isinstance(each, dict)]
    spec["versions"] = versions
    if spec.pop("preserveUnknownFields", None):
        _preserve_unknown_fields(versions)
    return (*_without_webhook(spec, versions), *_with_stored(spec, versions, tenant))


def _preserve_unknown_fields(versions: list[Object]) -> None:
    """Of definitions that were made as v1beta1: v1 refuses a new one that says so but in its schemas."""
    for each in versions:
        schema = each.get("schema") or {}
        root = schema.get("openAPIV3Schema") or {"type": "object"}
        each["schema"] = schema | {
            "openAPIV3Schema": root | {"x-kubernetes-preserve-unknown-fields": True},
        }


def _without_webhook(spec: Object, versions: list[Object]) -> tuple[Change, ...]:
    conversion = spec.get("conversion") or {}
    client = (conversion.get("webhook") or {}).get("clientConfig") or {}
    if conversion.get("strategy") != "Webhook" or "service" not in client:
        return ()
    spec["conversion"] = {"strategy": "None"}
    stored = next((str(each.get("name")) for each in versions if each.get("storage")), "")
    ended = [str(each.get("name")) for each in versions if each.get("served") and not each.get("storage")]
    for each in versions:
        each["served"] = bool(each.get("storage"))
    if not ended:
        return ()
    how = f"what converts {', '.join(ended)} runs where this cluster cannot call it"
    return (Change("spec.conversion", f"is served as {stored} alone: {how}"),)


def _with_stored(spec: Object, versions: list[Object], tenant: Object | None) -> tuple[Change, ...]:
    """The versions in which the tenant's objects may be stored are kept, and are not served."""
    status = (tenant or {}).get("status") or {}
    there = {each.get("name"): each for each in ((tenant or {}).get("spec") or {}).get("versions") or ()}
    names = {each.get("name") for each in versions}
    kept = [
        there[name]
        for name in dict.fromkeys(status.get("storedVersions") or ())
        if name in there and name not in names
    ]
    spec["versions"] = [*versions, *(each | {"served": False, "storage": False} for each in kept)]
    if not kept:
        return ()
    shown = ", ".join(str(each.get("name")) for each in kept)
    how = "write all objects again, then take it out of status.storedVersions"
    return (Change("spec.versions", f"{shown} is kept for what is stored so, and not served: {how}"),)


SYNC: KindSync = PublishedSync(KIND, fit=fit)
