# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks of a tenant that can stop its control plane: that must answer, and are away or match
all.

A configuration itself is exempt from admission webhooks (Kubernetes, "Dynamic Admission Control": webhooks
are not called for webhook configurations), so one can always be changed.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kubectl_vc.core.view import Object, at, objects, text

VALIDATING = "validatingwebhookconfigurations"
MUTATING = "mutatingwebhookconfigurations"
_FAIL = "Fail"
_ALL = "*"
# Of the API server: `failed calling webhook "NAME": failed to call webhook: ...`.
_CALL_FAILED = re.compile(r'failed calling webhook "([^"]{1,253})"')

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class Webhook(NamedTuple):
    """One webhook of a configuration, at its place in it."""

    resource: str
    configuration: str
    place: int
    name: str
    failure_policy: str
    matches_all: bool
    target: str
    service: tuple[str, str] = ("", "")

    @property
    def path(self) -> str:
        return f"{self.resource} {self.configuration}, webhook {self.name}"


class Blocker(NamedTuple):
    """One that stops requests, or can; `causes` say how."""

    webhook: Webhook
    causes: tuple[str, ...]


def webhooks(resource: str, configurations: Sequence[Object]) -> Iterator[Webhook]:
    """All that these configurations have. A name becomes a word of commands: one that no API server gives,
    such as an option of kubectl, is left out."""
    for configuration in configurations:
        name = text(configuration, "metadata", "name")
        if _NAME.fullmatch(name):
            for index, each in enumerate(objects(configuration, "webhooks")):
                yield _webhook(resource, name, index, each)


def blockers(
    found: Sequence[Webhook], served: Collection[tuple[str, str]] | None, failed: Collection[str]
) -> list[Blocker]:
    """Those with failurePolicy Fail that match everything, whose Service has no ready endpoint, or that a
    request failed on. `served` are the Services that have one; None if they cannot be listed."""
    return [
        Blocker(each, causes)
        for each in found
        if each.failure_policy == _FAIL and (causes := tuple(_causes(each, served, failed)))
    ]


def failed_webhooks(message: str) -> list[str]:
    """Which webhooks an error of the API server names."""
    return _CALL_FAILED.findall(message)


def chosen(found: Sequence[Webhook], name: str) -> list[Webhook]:
    """By the name of the configuration or of the webhook, those that must answer."""
    return [
        each for each in found if name in (each.configuration, each.name) and each.failure_policy == _FAIL
    ]


def policy_patch(webhook: Webhook, policy: str) -> list[Object]:
    """RFC 6902: only if the webhook is still at its place."""
    path = f"/webhooks/{webhook.place}"
    return [
        {"op": "test", "path": f"{path}/name", "value": webhook.name},
        {"op": "replace", "path": f"{path}/failurePolicy", "value": policy},
    ]


def served_services(slices: Sequence[Object]) -> set[tuple[str, str]]:
    """The Services with a ready endpoint (discovery.k8s.io/v1: `ready` may be absent, and counts as true)."""
    return {
        (text(each, "metadata", "namespace"), text(each, "metadata", "labels", "kubernetes.io/service-name"))
        for each in slices
        if any(at(endpoint, "conditions", "ready") is not False for endpoint in objects(each, "endpoints"))
    }


def _webhook(resource: str, configuration: str, place: int, value: Object) -> Webhook:
    service = (
        text(value, "clientConfig", "service", "namespace"),
        text(value, "clientConfig", "service", "name"),
    )
    url = text(value, "clientConfig", "url")
    return Webhook(
        resource,
        configuration,
        place,
        text(value, "name"),
        text(value, "failurePolicy") or _FAIL,
        _matches_all(value),
        url or f"Service {service[0]}/{service[1]}",
        service if not url else ("", ""),
    )


def _matches_all(value: Object) -> bool:
    """A rule for all resources of all groups or of the core one, without a selector or condition."""
    selectors = ("namespaceSelector", "objectSelector")
    if any(at(value, each) not in (None, {}) for each in selectors) or at(value, "matchConditions"):
        return False
    return any(_is_wide(each) for each in objects(value, "rules"))


def _is_wide(rule: Object) -> bool:
    groups, resources = at(rule, "apiGroups"), at(rule, "resources")
    if not isinstance(groups, list) or not isinstance(resources, list):
        return False
    return _ALL in groups and any(each in (_ALL, "*/*") for each in resources)


def _causes(
    webhook: Webhook, served: Collection[tuple[str, str]] | None, failed: Collection[str]
) -> Iterator[str]:
    if webhook.name in failed:
        yield "a request failed on it just now"
    if served is not None and webhook.service != ("", "") and webhook.service not in served:
        yield f"{webhook.target} has no ready endpoint"
    if webhook.matches_all:
        yield "it must answer each write of the tenant, the control plane's own too"
