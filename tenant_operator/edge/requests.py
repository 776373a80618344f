# SPDX-License-Identifier: Apache-2.0
"""Single requests about objects of the super cluster, in the operator's name."""

import msgspec

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import PODS, MetadataOnly
from tenancy import keys
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import OPERATOR, RESOURCES, Object, Ref, ref_of

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
# Each answer is one object; a Secret may have 1 MiB.
MAX_ANSWER_BYTES = 4 << 20
_MAX_PODS = 100
_ENCODER = msgspec.json.Encoder()


class _PodList(msgspec.Struct, frozen=True):
    items: list[MetadataOnly] = []


class SuperClusterWriter:
    """Reads and writes single objects."""

    def __init__(self, client: GatedClient) -> None:
        self._client = client

    def check_leads(self) -> None:
        """Before something else than the super cluster is written. Raises UnreachableError."""
        self._client.check_leads()

    async def get(self, ref: Ref) -> Object | None:
        """The object, or None if it does not exist. Raises ApiError, UnreachableError."""
        try:
            return _decoded(await self._client.request("GET", ref.path, {}, limit_bytes=MAX_ANSWER_BYTES))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def apply(self, manifest: Object) -> Object:
        """Server-side apply: fields of ours are ours, also after another manager changed them."""
        params = {"fieldManager": OPERATOR, "force": "true"}
        return await self._write("PATCH", ref_of(manifest).path, manifest, params, APPLY)

    async def create(self, manifest: Object) -> Object | None:
        """Create it; None if an object of that name exists."""
        ref = ref_of(manifest)
        path = RESOURCES[ref.kind].path(ref.namespace or None)
        try:
            return await self._write("POST", path, manifest, {"fieldManager": OPERATOR})
        except ApiError as error:
            if error.status.code == 409 and error.status.reason == "AlreadyExists":
                return None
            raise

    async def replace(self, manifest: Object) -> Object:
        """Replace the version that the manifest names."""
        return await self._write("PUT", ref_of(manifest).path, manifest, {"fieldManager": OPERATOR})

    async def patch(self, ref: Ref, patch: Object, subresource: str = "") -> Object:
        """A merge patch."""
        path = f"{ref.path}/{subresource}" if subresource else ref.path
        return await self._write("PATCH", path, patch, {"fieldManager": OPERATOR}, MERGE_PATCH)

    async def remove(self, ref: Ref, uid: str) -> None:
        """Delete the object of this UID, with what it owns; it is no fault if that is gone."""
        body: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid},
            # These stay until their pods have ended: what they use is removed after them.
            "propagationPolicy": "Foreground" if ref.kind in ("Deployment", "Job") else "Background",
        }
        await self._delete(ref.path, body)

    async def end_pods(self, namespace: str, ended_before: str) -> None:
        """Delete the operator's pods that should have ended before a time (RFC 3339, UTC), without waiting
        for their kubelets."""
        params = {"labelSelector": f"{keys.MANAGED_BY}={OPERATOR}", "limit": str(_MAX_PODS)}
        path = PODS.path(namespace)
        found = await self._client.request("GET", path, params, limit_bytes=MAX_ANSWER_BYTES)
        for each in msgspec.json.decode(found, type=_PodList).items:
            ends_at = each.metadata.deletion_timestamp
            if ends_at and ends_at <= ended_before:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
                body = options | {"preconditions": {"uid": each.metadata.uid}}
                await self._delete(f"{path}/{each.metadata.name}", body)

    async def _delete(self, path: str, options: Object) -> None:
        """It is no fault if it is gone, or another one meanwhile."""
        try:
            await self._write("DELETE", path, options, {})
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise

    async def _write(
        self,
        method: str,
        path: str,
        body: Object,
        params: dict[str, str],
        content_type: str = "application/json",
    ) -> Object:
        answer = await self._client.request(
            method,
            path,
            params,
            _ENCODER.encode(body),
            content_type=content_type,
            limit_bytes=MAX_ANSWER_BYTES,
        )
        return _decoded(answer)


def _decoded(answer: bytes) -> Object:
    found: Object = msgspec.json.decode(answer)
    return found
