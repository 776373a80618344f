# SPDX-License-Identifier: Apache-2.0
"""Requests to a tenant's API server by known paths; it may answer anything, and slowly."""

from collections.abc import Sequence
from typing import Any

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiError
from tenant_operator.defaults.kinds import KINDS
from tenant_operator.defaults.webhooks import BlockingWebhook, configuration_of
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import OPERATOR, Object

_APPLY = "application/apply-patch+yaml"
# One object; a list is asked for one item of it.
_MAX_ANSWER_BYTES = 4 << 20
_MAX_CONFIGURATIONS = 500
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()
_WEBHOOKS = tuple(
    ("admissionregistration.k8s.io/v1", f"{which}WebhookConfiguration")
    for which in ("Validating", "Mutating")
)


class TenantApi:
    """One tenant's API server. All methods raise ApiError and UnreachableError."""

    def __init__(self, client: GatedClient) -> None:
        self._client = client

    async def read(self, path: str) -> Object | None:
        """The object at this path; None if it, or its kind, does not exist."""
        try:
            return await self._get(path, {})
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def apply(self, path: str, manifest: Object, *, forces: bool) -> Object:
        """Server-side apply. A body with UID and version is refused for another object or version."""
        params = {"fieldManager": OPERATOR, "force": "true" if forces else "false"}
        body = _ENCODER.encode(manifest)
        answer = await self._client.request(
            "PATCH", path, params, body, content_type=_APPLY, limit_bytes=_MAX_ANSWER_BYTES
        )
        return decoded(_OBJECT, answer)

    async def remove(self, path: str, uid: str, resource_version: str) -> None:
        """Delete this version of the object, with what it owns; it is no fault if that is gone."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        try:
            await self._client.request(
                "DELETE", path, {}, _ENCODER.encode(options), limit_bytes=_MAX_ANSWER_BYTES
            )
        except ApiError as error:
            if error.status.code != 404:
                raise

    async def has_objects(self, collections: Sequence[str]) -> bool:
        """Whether a kind has an object, by the first of its collections that is served; True if none is."""
        for path in collections:
            try:
                items = (await self._get(path, {"limit": "1"})).get("items")
            except ApiError as error:
                if error.status.code != 404:
                    raise
            else:
                return not isinstance(items, list) or bool(items)
        return True

    async def configuration_of(self, webhook: BlockingWebhook) -> str:
        """`Kind name` of the one that has the webhook, of the first ones of both kinds; empty if none has."""
        for kind in _WEBHOOKS:
            items = (await self._get(KINDS[kind].path(), {"limit": str(_MAX_CONFIGURATIONS)})).get("items")
            named = (each for each in (items if isinstance(items, list) else ()) if isinstance(each, dict))
            if found := configuration_of(webhook, ({**each, "kind": kind[1]} for each in named)):
                return found
        return ""

    async def _get(self, path: str, params: dict[str, str]) -> Object:
        return decoded(
            _OBJECT, await self._client.request("GET", path, params, limit_bytes=_MAX_ANSWER_BYTES)
        )
