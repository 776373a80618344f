# SPDX-License-Identifier: Apache-2.0
"""A page that is too large is read in smaller ones; every list of a tenant is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from daemonkit.kube.client import AnswerTooLargeError
from tenant_operator.edge import account_keys, authority_keys, stored_secrets, super_namespaces
from tenant_operator.edge.authority_keys import RotatingAuthority
from tenant_operator.edge.pages import MAX_PAGE_BYTES, PageReader
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

FILLED = "x" * (1 << 20)


class FilledLists(FakeAnswers):
    """Has ten objects of a mebibyte each in each list, and fails who takes more than a page."""

    has_ended = False

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        **options: Any,
    ) -> bytes:
        self.requests.append((f"{method} {path}", dict(params)))
        if method != "GET":
            return b"{}"
        limit_bytes: int = options["limit_bytes"]
        assert limit_bytes <= MAX_PAGE_BYTES
        begin = int(params.get("continue", "0"))
        end = min(begin + int(params["limit"]), 10)
        metadata: dict[str, Any] = {"annotations": {"filled": FILLED}, "namespace": "shop", "uid": "u"}
        items = [{"metadata": {**metadata, "name": f"s{at}"}} for at in range(begin, end)]
        found = {"metadata": {"continue": "" if end == 10 else str(end)}, "items": items}
        text = json.dumps(found).encode()
        if len(text) > limit_bytes:
            raise AnswerTooLargeError("too large")
        self.has_ended = end == 10
        return text


AUTHORITY = RotatingAuthority({}, {})
LISTS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "tokens": account_keys.token_secrets,
    "root certificates": lambda client: authority_keys.root_certificates(client, AUTHORITY),
    "stored Secrets": lambda client: stored_secrets.rewrite(client, ""),
    "namespaces": lambda client: super_namespaces.namespaces_of(client, "key", "uid"),
}


@pytest.mark.parametrize("name", LISTS)
async def test_full_objects_end_no_list(name: str) -> None:
    client = FilledLists({})
    await LISTS[name](client)
    assert client.has_ended


@pytest.mark.parametrize(("most", "limits"), [(1, [1]), (20, [20, 10, 5, 2, 1])])
async def test_an_object_that_is_no_page_ends_it(most: int, limits: list[int]) -> None:
    client = FakeAnswers({"GET /x": AnswerTooLargeError("too large")})
    with pytest.raises(AnswerTooLargeError):
        await PageReader(client, "/x", {"a": "b"}, most).read("t")  # type: ignore[arg-type]
    assert client.requests == [("GET /x", {"a": "b", "limit": str(each), "continue": "t"}) for each in limits]


async def test_a_page_has_its_time() -> None:
    class Silent(FakeAnswers):
        async def request(self, *_: object, **__: object) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(TimeoutError):
        await PageReader(Silent({}), "/x", {}, 1, 0.0).read("")  # type: ignore[arg-type]
