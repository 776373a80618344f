# SPDX-License-Identifier: Apache-2.0
"""Writes a tenant's Secrets again as they are, so that its store has them encrypted by the present key.

An empty patch changes nothing of a Secret. The API server reads it from the store all the same, and writes it
if a former key encrypted it (`GuaranteedUpdate`, k8s.io/apiserver pkg/storage/etcd3: stale data).
"""

import msgspec

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import SECRETS, ListMeta, Named, NameOnly
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import OPERATOR

# Some seconds of a step: the next one goes on behind it.
MAX_SECRETS = 500
# Each may have a mebibyte, and a page is read whole.
_PAGE = 20
_MAX_PAGE_BYTES = 32 << 20
_MAX_ANSWER_BYTES = 4 << 20
_MERGE_PATCH = "application/merge-patch+json"


class _StoredSecrets(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Named] = []


async def rewrite(client: GatedClient, token: str) -> str:
    """Rewrite those behind this token of a list; returns the next token, empty behind the last Secret.

    One that is gone, or was written meanwhile, needs nothing. Raises ApiError and UnreachableError for the
    first that the API server refuses.
    """
    for _ in range(MAX_SECRETS // _PAGE):
        page = await _page(client, token)
        for each in page.items:
            await _write(client, each.metadata)
        token = page.metadata.continue_
        if not token:
            break
    return token


async def _page(client: GatedClient, token: str) -> _StoredSecrets:
    params = {"limit": str(_PAGE)} | ({"continue": token} if token else {})
    try:
        body = await client.request("GET", SECRETS.path(None), params, limit_bytes=_MAX_PAGE_BYTES)
    except ApiError as error:
        if error.status.code != 410 or not token:
            raise
        # The token has expired. From the beginning: what was rewritten costs a read.
        return await _page(client, "")
    return msgspec.json.decode(body, type=_StoredSecrets)


async def _write(client: GatedClient, place: NameOnly) -> None:
    params = {"fieldManager": OPERATOR}
    path = SECRETS.path(place.namespace, place.name)
    try:
        await client.request(
            "PATCH", path, params, b"{}", content_type=_MERGE_PATCH, limit_bytes=_MAX_ANSWER_BYTES
        )
    except ApiError as error:
        if error.status.code not in (404, 409):
            raise
