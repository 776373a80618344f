# SPDX-License-Identifier: Apache-2.0
"""Finds the namespaces that vc-syncer has made for a tenant.

No label says whose one is, so all of the super cluster are listed. Tenants fill their annotations: what one
of them writes makes pages smaller, and does not end the list.
"""

import asyncio

import msgspec

from daemonkit.kube.client import AnswerTooLargeError, ApiClient
from daemonkit.kube.resources import ListMeta, MetadataOnly
from tenancy import keys

# Of a page: of all of them it grows with the tenants.
PAGE_TIMEOUT_S = 5.0
MAX_PAGE_BYTES = 4 << 20
MAX_PAGE_ITEMS = 512


class _NamespacePage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[MetadataOnly] = []


async def namespaces_of(client: ApiClient, key: str, uid: str) -> dict[str, str]:
    """The UIDs of a tenant's namespaces by their names, empty for those that are being deleted.

    Raises ApiError, UnreachableError and TimeoutError.
    """
    found: dict[str, str] = {}
    token, limit = "", MAX_PAGE_ITEMS
    while True:
        params = {"limit": str(limit)} | ({"continue": token} if token else {})
        try:
            async with asyncio.timeout(PAGE_TIMEOUT_S):
                body = await client.request("GET", "/api/v1/namespaces", params, limit_bytes=MAX_PAGE_BYTES)
        except AnswerTooLargeError:
            # An object of etcd is smaller than a page.
            if limit == 1:
                raise
            limit //= 2
            continue
        page = msgspec.json.decode(body, type=_NamespacePage)
        for each in page.items:
            annotations = each.metadata.annotations
            is_its = (annotations.get(keys.CLUSTER), annotations.get(keys.VC_UID)) == (key, uid)
            if is_its and annotations.get(keys.VC_ROOT_NAMESPACE) != "true":
                found[each.metadata.name] = "" if each.metadata.deletion_timestamp else each.metadata.uid
        token = page.metadata.continue_
        if not token:
            return found
        limit = min(MAX_PAGE_ITEMS, limit * 2)
