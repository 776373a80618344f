# SPDX-License-Identifier: Apache-2.0
"""A tenant's webhook in the way of the operator's writes is named, with the remedy."""

import pytest

from daemonkit.kube.resources import Status
from tenant_operator.defaults.webhooks import (
    BlockingWebhook,
    blocking_webhook,
    configuration_of,
    webhook_problem,
)
from tenant_operator.model.objects import Object

BROKEN = BlockingWebhook("all.example.com", is_broken=True)
DENYING = BlockingWebhook("all.example.com", is_broken=False)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'Internal error occurred: failed calling webhook "all.example.com": failed to call webhook: Post'
            ' "https://x.y.svc:443/?timeout=10s": service "x" not found',
            BROKEN,
        ),
        (
            'failed calling webhook "all.example.com": expected webhook response of admission.k8s.io/v1',
            BROKEN,
        ),
        ('admission webhook "all.example.com" denied the request: no', DENYING),
        ('admission webhook "all.example.com" denied the request without explanation', DENYING),
        # Words that a tenant's own text has.
        ('ConfigMap "x" is invalid: admission webhook "a.b.c" denied the request', None),
        ('failed calling webhook "A B"', None),
        ("", None),
        ("x" * 5000 + 'failed calling webhook "all.example.com"', None),
    ],
)
def test_the_webhook_is_read_from_the_error(message: str, expected: BlockingWebhook | None) -> None:
    assert blocking_webhook(Status(500, "InternalError", message)) == expected


def configuration(kind: str, name: str, *webhooks: object) -> Object:
    return {"kind": kind, "metadata": {"name": name}, "webhooks": list(webhooks)}


def test_the_configuration_is_found_by_its_webhook() -> None:
    every = [
        configuration("MutatingWebhookConfiguration", "one", {"name": "other.example.com"}, 3),
        {"kind": "ValidatingWebhookConfiguration", "webhooks": None},
        configuration("ValidatingWebhookConfiguration", "two", {"name": "all.example.com"}),
    ]
    assert configuration_of(BROKEN, every) == "ValidatingWebhookConfiguration two"
    assert configuration_of(BROKEN, every[:2]) == ""


@pytest.mark.parametrize("name", ["\x1b[2J\n", "x" * 254, "", "--all", "A", 3, None, ["a"], "a\u2028b"])
def test_a_configuration_without_a_name_is_none(name: object) -> None:
    """A text of the tenant's is shown to people, and is a part of a command."""
    whole: Object = {"kind": "K", "metadata": {"name": name}, "webhooks": [{"name": "all.example.com"}]}
    assert configuration_of(BROKEN, [whole, {**whole, "metadata": [name]}]) == ""


def test_the_problem_names_configuration_and_remedy() -> None:
    assert webhook_problem(BROKEN, "ValidatingWebhookConfiguration two", "acme") == (
        "ValidatingWebhookConfiguration two (webhook all.example.com) of the tenant does not answer, so that"
        " the tenant's API server refuses writes; repair it, or disable it: kubectl vc unblock acme"
    )
    assert webhook_problem(DENYING, "", "acme") == (
        "webhook all.example.com of the tenant denies writes of vc-operator; repair it, or disable it:"
        " kubectl vc unblock acme"
    )
