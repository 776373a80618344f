# SPDX-License-Identifier: Apache-2.0
"""The namespaces of a tenant are found whatever other tenants write into theirs."""

from collections.abc import Mapping
from typing import cast

import msgspec
import pytest

from daemonkit.kube.client import AnswerTooLargeError, ApiClient
from tenancy import keys
from tenant_operator.edge.pages import MAX_PAGE_BYTES
from tenant_operator.edge.super_namespaces import namespaces_of
from tenant_operator.model.objects import Object

pytestmark = pytest.mark.asyncio

KIB = 1 << 10


def namespace(name: str, uid: str = "other", size: int = 0, more: Mapping[str, str] | None = None) -> Object:
    annotations = {keys.CLUSTER: "t-1-acme", keys.VC_UID: uid, "note": "a" * size, **(more or {})}
    return {"metadata": {"name": name, "uid": f"uid of {name}", "annotations": annotations}}


class FakeList:
    """Answers pages of a list as an API server does; `sizes` are the limits that were asked for."""

    def __init__(self, items: list[Object]) -> None:
        self.items = items
        self.limits: list[int] = []

    async def request(self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int) -> bytes:
        assert (method, path) == ("GET", "/api/v1/namespaces")
        start, limit = int(params.get("continue", "0")), int(params["limit"])
        self.limits.append(limit)
        end = start + limit
        metadata = {"continue": str(end)} if end < len(self.items) else {}
        body = msgspec.json.encode({"metadata": metadata, "items": self.items[start:end]})
        if len(body) > limit_bytes:
            raise AnswerTooLargeError("too large")
        return body


async def found_in(items: list[Object]) -> tuple[dict[str, str], FakeList]:
    fake = FakeList(items)
    return await namespaces_of(cast(ApiClient, fake), "t-1-acme", "mine"), fake


@pytest.mark.parametrize("size", [0, 1 * KIB, 255 * KIB, 1024 * KIB])
@pytest.mark.parametrize("count", [1, 33, 200])
async def test_annotations_of_others_do_not_hide_ours(size: int, count: int) -> None:
    """In front of ours, between and behind them."""
    most = 60 if size > 300 * KIB else count
    evil = [namespace(f"evil-{number}", size=size) for number in range(min(count, most))]
    middle = len(evil) // 2
    ours = [namespace(name, "mine") for name in "abc"]
    items = [ours[0], *evil[:middle], ours[1], *evil[middle:], ours[2]]
    found, fake = await found_in(items)
    assert found == {name: f"uid of {name}" for name in "abc"}
    # Pages grow again: not each namespace is a request.
    assert len(fake.limits) <= 8 + 4 * sum(len(str(each)) for each in items) // MAX_PAGE_BYTES + 4


async def test_only_namespaces_of_the_tenant_are_found() -> None:
    root = namespace("root", "mine", more={keys.VC_ROOT_NAMESPACE: "true"})
    ending = namespace("ending", "mine")
    ending["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    other = namespace("other", "mine", more={keys.CLUSTER: "t-2-acme"})
    bare: Object = {"metadata": {"name": "kube-system", "uid": "x"}}
    found, fake = await found_in([root, ending, other, bare, namespace("live", "mine")])
    assert (found, fake.limits) == ({"ending": "", "live": "uid of live"}, [512])


async def test_one_that_fits_no_page_is_an_error() -> None:
    with pytest.raises(AnswerTooLargeError):
        await found_in([namespace("a", size=MAX_PAGE_BYTES)])
