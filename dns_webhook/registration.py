# SPDX-License-Identifier: Apache-2.0
"""The webhook's registration, and the publication of our authorities in it.

An administrator creates it from packaging/webhook/registration.yaml. The webhook patches `caBundle` and
nothing else.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from daemonkit.kube.client import Requester

NAME = "dnsconfig.vcnode.io"
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
# Deleted replicas leave their authorities behind. Each running replica keeps its own among the last
# _MAX_REPLICAS of the bundle. Without room the first is dropped, so that this many replicas are safe.
MAX_AUTHORITIES = 16
_MAX_REPLICAS = MAX_AUTHORITIES // 2

_BEGIN = b"-----BEGIN CERTIFICATE-----"


class RegistrationError(Exception):
    """The registration lacks our webhook."""


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
    if all(each in kept[-_MAX_REPLICAS:] for each in ours):
        return kept
    return [*(each for each in kept if each not in ours), *ours][-MAX_AUTHORITIES:]


def _ours(found: dict[str, Any]) -> tuple[int, dict[str, Any]]:
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
