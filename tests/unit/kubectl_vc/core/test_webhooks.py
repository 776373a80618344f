# SPDX-License-Identifier: Apache-2.0
"""Which webhooks stop a tenant."""

from typing import Any

import pytest

from kubectl_vc.core.view import Object
from kubectl_vc.core.webhooks import (
    MUTATING,
    VALIDATING,
    blockers,
    chosen,
    failed_webhooks,
    policy_patch,
    served_services,
    webhooks,
)

ALL = {"apiGroups": ["*"], "resources": ["*"]}
SERVED = {("d", "there")}


def configuration(of: str = "c", **webhook: Any) -> Object:
    service = {"service": {"namespace": "d", "name": "there"}}
    return {"metadata": {"name": of}, "webhooks": [{"name": "w.x", "clientConfig": service, **webhook}]}


@pytest.mark.parametrize(
    "name", ["--kubeconfig=x", "-f", "a b", "A", "a\x1b", "a-", "", "a" * 254, "a;b", "a/b"]
)
def test_names_of_no_api_server_are_left_out(name: str) -> None:
    """They would be words of kubectl's command."""
    every = [configuration(name), configuration("c-1.x")]
    assert [each.configuration for each in webhooks(VALIDATING, every)] == ["c-1.x"]


AWAY: dict[str, Any] = {"clientConfig": {"service": {"namespace": "d", "name": "gone"}}}
MATCHES_ALL = "it must answer each write of the tenant, the control plane's own too"


@pytest.mark.parametrize(
    ("webhook", "failed", "causes"),
    [
        ({"rules": [ALL]}, [], [MATCHES_ALL]),
        (
            {"rules": [{**ALL, "resources": ["*/*"]}], "failurePolicy": "Fail", "namespaceSelector": {}},
            [],
            [MATCHES_ALL],
        ),
        ({"rules": [ALL], "failurePolicy": "Ignore"}, ["w.x"], None),
        ({"rules": [ALL], "namespaceSelector": {"matchLabels": {"a": "b"}}}, [], None),
        ({"rules": [ALL], "objectSelector": {"matchLabels": {"a": "b"}}}, [], None),
        ({"rules": [ALL], "matchConditions": [{"name": "n", "expression": "false"}]}, [], None),
        ({"rules": [{**ALL, "apiGroups": ["apps"]}]}, [], None),
        ({"rules": [{**ALL, "resources": ["pods"]}]}, [], None),
        ({"rules": "bad"}, [], None),
        ({}, ["w.x"], ["a request failed on it just now"]),
        (AWAY, [], ["Service d/gone has no ready endpoint"]),
        (
            {**AWAY, "rules": [ALL]},
            ["w.x"],
            ["a request failed on it just now", "Service d/gone has no ready endpoint", MATCHES_ALL],
        ),
        ({"clientConfig": {"url": "https://x"}}, [], None),
    ],
)
def test_blockers(webhook: Any, failed: list[str], causes: list[str] | None) -> None:
    found = list(webhooks(VALIDATING, [configuration(**webhook)]))
    assert [list(each.causes) for each in blockers(found, SERVED, failed)] == ([causes] if causes else [])


def test_endpoints_that_may_not_be_read_are_no_cause() -> None:
    assert blockers(list(webhooks(VALIDATING, [configuration(**AWAY)])), None, []) == []


def test_one_is_chosen_by_either_name() -> None:
    found = [
        *webhooks(VALIDATING, [configuration("a"), configuration("b", failurePolicy="Ignore")]),
        *webhooks(MUTATING, [configuration("a", name="other")]),
    ]
    assert [each.path for each in chosen(found, "a")] == [
        "validatingwebhookconfigurations a, webhook w.x",
        "mutatingwebhookconfigurations a, webhook other",
    ]
    assert [each.configuration for each in chosen(found, "w.x")] == ["a"]
    assert chosen(found, "b") == []


def test_a_policy_is_changed_only_at_its_place() -> None:
    (found,) = webhooks(VALIDATING, [configuration()])
    assert policy_patch(found, "Ignore") == [
        {"op": "test", "path": "/webhooks/0/name", "value": "w.x"},
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
    ]


def test_the_api_server_names_what_failed() -> None:
    message = (
        'Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://x"'
    )
    assert failed_webhooks(message) == ["a.b"]
    assert failed_webhooks("denied") == []


def test_services_with_a_ready_endpoint() -> None:
    def endpoint_slice(name: str, *ready: object) -> Object:
        labels = {"kubernetes.io/service-name": name}
        endpoints = [{"conditions": {} if each is None else {"ready": each}} for each in ready]
        return {"metadata": {"namespace": "d", "labels": labels}, "endpoints": endpoints}

    slices = [
        endpoint_slice("a", True),
        endpoint_slice("b", False),
        endpoint_slice("c"),
        endpoint_slice("e", None),
    ]
    assert served_services(slices) == {("d", "a"), ("d", "e")}
