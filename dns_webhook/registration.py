# SPDX-License-Identifier: Apache-2.0
"""The webhook's registration, and the publication of our authorities in it.

An administrator creates it. The webhook patches `caBundle` and nothing else.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from daemonkit.kube.client import Requester
from tenancy import keys

NAME = "dnsconfig.vcnode.io"
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
TIMEOUT_S = 5
# Deleted replicas leave their authorities behind. Each living replica keeps its own among the last
# _LIVING of the bundle. Without room the first is dropped, so that up to _LIVING replicas are safe.
MAX_AUTHORITIES = 16
_LIVING = MAX_AUTHORITIES // 2

_BEGIN = b"-----BEGIN CERTIFICATE-----"

Json = dict[str, Any]


class RegistrationError(Exception):
    """The registration lacks our webhook."""


def registration(client_config: Json) -> Json:
    """The object. `client_config` has `service` or `url`; `publish` adds our authorities.

    failurePolicy is Fail: a pod that is admitted without its resolver would ask another network's or
    the host's server for its whole life, and a denied one is retried. matchConditions limit it to
    tenants' pods (Kubernetes before 1.28 drops them, and sends all), so that the super cluster's own
    pods start without it.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": NAME,
                "admissionReviewVersions": ["v1"],
                "clientConfig": client_config,
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                        "scope": "Namespaced",
                    }
                ],
                "matchConditions": [
                    {
                        "name": "a-tenants-pod",
                        "expression": "has(object.metadata.annotations) && "
                        f"'{keys.CLUSTER}' in object.metadata.annotations",
                    }
                ],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": TIMEOUT_S,
                # Another webhook may change what decides; reviewing an unchanged pod again is harmless.
                "reinvocationPolicy": "IfNeeded",
            }
        ],
    }


async def publish(api: Requester, authorities: Sequence[bytes], stale: Sequence[bytes]) -> bool:
    """Add our authorities to the bundle, and remove `stale` ones; returns whether it changed.

    Other replicas' authorities stay while there is room. Raises RegistrationError, and what `api`
    raises.
    """
    found = msgspec.json.decode(await api.request("GET", f"{PATH}/{NAME}", {}), type=dict[str, Any])
    index, webhook = _ours(found)
    text = str(webhook.get("clientConfig", {}).get("caBundle") or "")
    current = split(base64.b64decode(text))
    desired = merged(current, authorities, stale)
    if desired == current:
        return False
    where = f"/webhooks/{index}"
    steps = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
        {"op": "add", "path": f"{where}/clientConfig/caBundle", "value": _encoded(desired)},
    ]
    await api.request(
        "PATCH", f"{PATH}/{NAME}", {}, msgspec.json.encode(steps), content_type="application/json-patch+json"
    )
    return True


def merged(current: Sequence[bytes], ours: Sequence[bytes], stale: Sequence[bytes]) -> list[bytes]:
    """The desired bundle: equal to `current` if ours are among the last and nothing is stale."""
    kept = [each for each in current if each not in stale]
    if all(each in kept[-_LIVING:] for each in ours):
        return kept
    return [*(each for each in kept if each not in ours), *ours][-MAX_AUTHORITIES:]


def _ours(found: Json) -> tuple[int, Json]:
    for index, webhook in enumerate(found.get("webhooks") or []):
        if webhook.get("name") == NAME:
            return index, webhook
    raise RegistrationError(
        f"{NAME}: the registration has no webhook of that name; apply packaging/webhook/registration.yaml"
    )


def _encoded(authorities: Sequence[bytes]) -> str:
    return base64.b64encode(b"".join(authorities)).decode()


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a PEM bundle, each as this webhook writes it."""
    return [(_BEGIN + part).strip() + b"\n" for part in bundle.split(_BEGIN)[1:]]
