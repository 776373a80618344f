# SPDX-License-Identifier: Apache-2.0
"""Ingresses by the SyncPolicy, as in docs/spec/sync-policy.md#ingresses."""

from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import ingresses, patterns
from syncer.policy.sync_policy import DEFAULT, IngressPolicy, SyncPolicy
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed
from tests.unit.syncer.policy.judged import with_keys

refusals_of = with_keys("Ingress", ingresses.refusals)
NARROW = SyncPolicy(
    ingresses=IngressPolicy(classes=frozenset({"nginx"}), hosts=patterns.of("*.acme.example", "acme.example"))
)
EVERY_HOST = SyncPolicy(ingresses=IngressPolicy(hosts=patterns.of("*")))
_OLDER = "kubernetes.io/ingress.class"


def ingress(*hosts: Any, annotations: Object | None = None, **spec: Any) -> Object:
    rules = [{"host": each} if each is not None else {"http": {}} for each in hosts]
    return {"metadata": {"annotations": annotations or {}}, "spec": {"rules": rules, **spec}}


def denied(path: str, what: str, field: str) -> Refusal:
    return Refusal(path, f"{what}: SyncPolicy field spec.ingresses.{field} does not allow it")


CASES: list[tuple[Object, SyncPolicy, tuple[Refusal, ...]]] = [
    ({}, DEFAULT, ()),
    (ingress("shop.example.com", "*.example.com", ingressClassName="any"), DEFAULT, ()),
    (ingress("shop.ACME.example", "acme.example", "*.acme.example", ingressClassName="nginx"), NARROW, ()),
    (ingress("a.acme.example", annotations={_OLDER: "nginx"}), NARROW, ()),
    (ingress(None, "*.com", defaultBackend={"service": {}}), EVERY_HOST, ()),
    (
        ingress("shop.example.com", None),
        DEFAULT,
        (
            Refusal(
                "spec.rules[1].host",
                "a rule for every host: SyncPolicy field spec.ingresses.hosts does not allow it",
            ),
        ),
    ),
    (ingress("*.com"), DEFAULT, (denied("spec.rules[0].host", "host *.com", "hosts"),)),
    (
        ingress(defaultBackend={"service": {"name": "web"}}),
        DEFAULT,
        (denied("spec.defaultBackend", "a backend for every host", "hosts"),),
    ),
    (
        ingress("acme.example.evil.example", "notacme.example", ingressClassName="nginx"),
        NARROW,
        (
            denied("spec.rules[0].host", "host acme.example.evil.example", "hosts"),
            denied("spec.rules[1].host", "host notacme.example", "hosts"),
        ),
    ),
    (
        ingress("*.example", ingressClassName="nginx", tls=[{"hosts": ["acme.example", "other.example"]}]),
        NARROW,
        (
            denied("spec.rules[0].host", "host *.example", "hosts"),
            denied("spec.tls[0].hosts[1]", "host other.example", "hosts"),
        ),
    ),
    (
        ingress("acme.example", ingressClassName="internal"),
        NARROW,
        (denied("spec.ingressClassName", "ingress class internal", "classes"),),
    ),
    (
        ingress("acme.example"),
        NARROW,
        (denied("spec.ingressClassName", "an Ingress without a class", "classes"),),
    ),
    (
        ingress("acme.example", annotations={_OLDER: "internal"}, ingressClassName="nginx"),
        NARROW,
        (denied(f"metadata.annotations[{_OLDER}]", "ingress class internal", "classes"),),
    ),
    *(
        (
            ingress("a.example.com", annotations={key: "x"}),
            DEFAULT,
            (denied(f"metadata.annotations[{key}]", "this annotation", "allowedAnnotations"),),
        )
        for key in (
            "nginx.ingress.kubernetes.io/configuration-snippet",
            "nginx.ingress.kubernetes.io/server-snippet",
            "nginx.ingress.kubernetes.io/auth-url",
            "nginx.ingress.kubernetes.io/auth-tls-secret",
            "nginx.ingress.kubernetes.io/server-alias",
            "nginx.org/location-snippets",
            "traefik.ingress.kubernetes.io/router.middlewares",
            "cert-manager.io/cluster-issuer",
            "nginx.ingress.kubernetes.io/rewrite-target",
        )
    ),
    (
        ingress("a.example.com", annotations={"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}),
        DEFAULT,
        (),
    ),
    (
        ingress("a.example.com", annotations={"cert-manager.io/cluster-issuer": "public"}),
        SyncPolicy(ingresses=IngressPolicy(allowed_annotations=patterns.of("cert-manager.io/*"))),
        (),
    ),
]


@pytest.mark.parametrize(("value", "policy", "expected"), CASES)
def test_ingresses(value: Object, policy: SyncPolicy, expected: tuple[Refusal, ...]) -> None:
    assert refusals_of(value, policy) == expected


@given(changed(*(value for value, _, _ in CASES if value)))
def test_any_json_gives_refusals(value: Object) -> None:
    for policy in (DEFAULT, NARROW):
        assert are_refusals(ingresses.refusals(value, policy))
