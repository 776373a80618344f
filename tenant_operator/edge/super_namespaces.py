# SPDX-License-Identifier: Apache-2.0
"""Finds the namespaces that vc-syncer has made for a tenant.

No label says whose one is, so all of the super cluster are listed. Tenants fill their annotations: what one
of them writes makes pages smaller, and does not end the list.
"""

import msgspec

from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import ListMeta, MetadataOnly
from tenancy import keys
from tenant_operator.edge.pages import PageReader

# Of a page: of all of them it grows with the tenants.
PAGE_TIMEOUT_S = 5.0
MAX_PAGE_ITEMS = 512


class _NamespacePage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[MetadataOnly] = []


async def namespaces_of(client: ApiClient, key: str, uid: str) -> dict[str, str]:
    """The UIDs of a tenant's namespaces by their names, empty for those that are being deleted.

    Raises ApiError, UnreachableError and TimeoutError.
    """
    found: dict[str, str] = {}
    reader = PageReader(client, "/api/v1/namespaces", {}, MAX_PAGE_ITEMS, PAGE_TIMEOUT_S)
    token = ""
    while True:
        page = msgspec.json.decode(await reader.read(token), type=_NamespacePage)
        for each in page.items:
            annotations = each.metadata.annotations
            is_its = (annotations.get(keys.CLUSTER), annotations.get(keys.VC_UID)) == (key, uid)
            if is_its and annotations.get(keys.VC_ROOT_NAMESPACE) != "true":
                found[each.metadata.name] = "" if each.metadata.deletion_timestamp else each.metadata.uid
        token = page.metadata.continue_
        if not token:
            return found
