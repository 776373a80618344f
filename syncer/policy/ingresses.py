# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Ingress may go down: it shares a controller, and the names of hosts, with others. Pure.

The controls and their reasons are in docs/spec/sync-policy.md#ingresses.
"""

from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import IngressPolicy, SyncPolicy

_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_HOSTS = "ingresses.hosts"


def refusals(ingress: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of an Ingress may not go down."""
    found = RefusalList()
    allowed = policy.ingresses
    spec = found.fields("spec", ingress.get("spec"))
    _check_class(found, ingress, spec.get("ingressClassName"), allowed)
    if spec.get("defaultBackend") is not None and not _is_allowed("", allowed):
        found.add("spec.defaultBackend", "a backend for every host", _HOSTS)
    for index, each in enumerate(found.items("spec.rules", spec.get("rules"))):
        path = f"spec.rules[{index}]"
        _check_host(found, f"{path}.host", found.fields(path, each).get("host"), allowed)
    for index, each in enumerate(found.items("spec.tls", spec.get("tls"))):
        path = f"spec.tls[{index}]"
        listed = found.items(f"{path}.hosts", found.fields(path, each).get("hosts"))
        for position, host in enumerate(listed):
            _check_host(found, f"{path}.hosts[{position}]", host, allowed)
    return found.done()


def _check_class(found: RefusalList, ingress: Object, own: Any, allowed: IngressPolicy) -> None:
    if allowed.classes is None:
        return
    metadata = ingress.get("metadata")
    annotations = metadata.get("annotations") if type(metadata) is dict else None
    older = annotations.get(_CLASS_ANNOTATION) if type(annotations) is dict else None
    if older is not None and text_of(older) not in allowed.classes:
        found.add(
            f"metadata.annotations[{_CLASS_ANNOTATION}]",
            f"ingress class {shown(older)}",
            "ingresses.classes",
        )
    if text_of(own) not in allowed.classes and (own or older is None):
        what = f"ingress class {shown(own)}" if own else "an Ingress without a class"
        found.add("spec.ingressClassName", what, "ingresses.classes")


def _check_host(found: RefusalList, path: str, value: Any, allowed: IngressPolicy) -> None:
    host = text_of(value).lower()
    if not _is_allowed(host, allowed):
        found.add(path, f"host {shown(value)}" if host else "a rule for every host", _HOSTS)


def _is_allowed(host: str, allowed: IngressPolicy) -> bool:
    """A wildcard is covered by a pattern with the same end, or a shorter one."""
    if allowed.hosts is not None:
        return allowed.hosts.match(host)
    # `*.com` would take a domain's every name, as no host does.
    return bool(host) and not (host.startswith("*") and host.count(".") < 2)
