# SPDX-License-Identifier: Apache-2.0
"""The webhook's registration: what it says, and how our authorities get into it.

Somebody else creates it. Ours is `caBundle` alone: get and patch of this one object.
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
# Replicas that are made anew leave their authorities behind. A bundle is in the order in which was
# last heard of each: who is alive keeps its own among the last _LIVING, and what stands first goes
# when there is no room, so that nobody alive is forgotten while there are no more of them than that.
MAX_AUTHORITIES = 16
_LIVING = MAX_AUTHORITIES // 2

_BEGIN = b"-----BEGIN CERTIFICATE-----"

Json = dict[str, Any]


class RegistrationError(Exception):
    """The registration is not as it has to be."""


def registration(client_config: Json) -> Json:
    """The object. `client_config` has `service` or `url`; our authorities come in by themselves.

    failurePolicy is Fail: a pod that is let in without its resolver would ask another network's or
    the host's server for as long as it lives, and one that is not let in is tried again. It is
    asked only about tenants' pods (a Kubernetes before 1.28 drops matchConditions, and asks about all), so
    what runs the cluster starts without it.
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
                # Another webhook may change what decides; ours changes nothing the second time.
                "reinvocationPolicy": "IfNeeded",
            }
        ],
    }


async def publish(api: Requester, authorities: Sequence[bytes], stale: Sequence[bytes]) -> bool:
    """Put our authorities into the bundle, and take `stale` ones out; whether it had to be changed.

    Others' stay, as replicas have their own, while there is room. Raises RegistrationError, and
    what `api` raises.
    """
    found = msgspec.json.decode(await api.request("GET", f"{PATH}/{NAME}", {}), type=dict[str, Any])
    index, webhook = _ours(found)
    text = str(webhook.get("clientConfig", {}).get("caBundle") or "")
    held = split(base64.b64decode(text))
    wanted = merged(held, authorities, stale)
    if wanted == held:
        return False
    where = f"/webhooks/{index}"
    steps = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
        {"op": "add", "path": f"{where}/clientConfig/caBundle", "value": _encoded(wanted)},
    ]
    await api.request(
        "PATCH", f"{PATH}/{NAME}", {}, msgspec.json.encode(steps), content_type="application/json-patch+json"
    )
    return True


def merged(held: Sequence[bytes], ours: Sequence[bytes], stale: Sequence[bytes]) -> list[bytes]:
    """The bundle as it has to be: `held` itself where nothing is missing, stale, or long unheard of."""
    kept = [each for each in held if each not in stale]
    if all(each in kept[-_LIVING:] for each in ours):
        return kept
    return [*(each for each in kept if each not in ours), *ours][-MAX_AUTHORITIES:]


def _ours(found: Json) -> tuple[int, Json]:
    for index, webhook in enumerate(found.get("webhooks") or []):
        if webhook.get("name") == NAME:
            return index, webhook
    raise RegistrationError(f"{NAME}: has no webhook of that name")


def _encoded(authorities: Sequence[bytes]) -> str:
    return base64.b64encode(b"".join(authorities)).decode()


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a PEM bundle, each as it is written by us."""
    return [(_BEGIN + part).strip() + b"\n" for part in bundle.split(_BEGIN)[1:]]
