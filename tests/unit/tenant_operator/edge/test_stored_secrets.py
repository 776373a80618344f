# SPDX-License-Identifier: Apache-2.0
"""Secrets are written again page by page, from where the last step ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from daemonkit.kube.client import ApiError, DeadlineError
from daemonkit.kube.resources import Status
from tenant_operator.edge import stored_secrets
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

LIST = "GET /api/v1/secrets"


def page(*names: str, token: str = "") -> dict[str, Any]:
    items = [{"metadata": {"namespace": "shop", "name": each}} for each in names]
    return {"metadata": {"continue": token}, "items": items}


def patch(name: str) -> str:
    return f"PATCH /api/v1/namespaces/shop/secrets/{name}"


def refusal(code: int) -> ApiError:
    return ApiError(Status(code=code, reason="Refused"))


async def test_all_pages_are_rewritten() -> None:
    pages: list[object] = [page("a", "b", token="next"), page("c")]
    client = FakeAnswers({LIST: pages, **{patch(each): {} for each in "abc"}})
    assert await stored_secrets.rewrite(client, "") == ""  # type: ignore[arg-type]
    assert [name for name, _ in client.requests] == [LIST, patch("a"), patch("b"), LIST, patch("c")]


async def test_a_step_ends_after_some_pages() -> None:
    client = FakeAnswers({LIST: page(token="next")})
    assert await stored_secrets.rewrite(client, "first") == "next"  # type: ignore[arg-type]
    assert len(client.requests) == stored_secrets.MAX_SECRETS // 20
    assert client.requests[0][1]["continue"] == "first"


@pytest.mark.parametrize("code", [404, 409])
async def test_who_is_gone_or_was_written_needs_nothing(code: int) -> None:
    client = FakeAnswers({LIST: page("a", "b"), patch("a"): refusal(code), patch("b"): {}})
    assert await stored_secrets.rewrite(client, "") == ""  # type: ignore[arg-type]


async def test_a_refused_write_ends_the_step() -> None:
    """As of a tenant's webhook: the Secret may be encrypted by the former key, which then stays."""
    client = FakeAnswers({LIST: page("a", "b"), patch("a"): refusal(500)})
    with pytest.raises(ApiError, match="500"):
        await stored_secrets.rewrite(client, "")  # type: ignore[arg-type]


async def test_an_expired_token_begins_again() -> None:
    client = FakeAnswers({LIST: [refusal(410), page("a")], patch("a"): {}})
    assert await stored_secrets.rewrite(client, "old") == ""  # type: ignore[arg-type]
    assert [params.get("continue") for name, params in client.requests if name == LIST] == ["old", None]
    with pytest.raises(ApiError, match="410"):
        await stored_secrets.rewrite(FakeAnswers({LIST: refusal(410)}), "")  # type: ignore[arg-type]


class HeldAnswers(FakeAnswers):
    """Holds each write but the first `left` ones, as a webhook does."""

    left = 0

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None, **_: object
    ) -> bytes:
        if method == "PATCH":
            self.left -= 1
            if self.left < 0:
                await asyncio.Event().wait()
        return await super().request(method, path, params, body)


@pytest.mark.parametrize("left", range(1, 6))
async def test_a_step_has_an_end_and_goes_on(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few writes there is time for, each Secret is written once."""
    monkeypatch.setattr(stored_secrets, "STEP_TIMEOUT_S", 0.0)
    pages = {None: page("a", "b-c", "b.c", token="next"), "next": page("d", "e")}
    written: list[str] = []
    answers: dict[str, Any] = {patch(each): {} for each in ("a", "b-c", "b.c", "d", "e")}
    progress, steps = "", 0
    while steps == 0 or progress:
        token = progress.partition("|")[0] or None
        follow = [pages[None], pages["next"]] if token is None else [pages["next"]]
        client = HeldAnswers({LIST: list(follow), **answers})
        client.left = left
        progress = await stored_secrets.rewrite(client, progress)  # type: ignore[arg-type]
        assert client.requests[0][1].get("continue") == token
        written += [name for name, _ in client.requests if name != LIST]
        steps += 1
    assert (written, steps) == ([patch(each) for each in ("a", "b-c", "b.c", "d", "e")], -(-5 // left))


async def test_a_step_without_one_write_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_secrets, "STEP_TIMEOUT_S", 0.0)
    client = HeldAnswers({LIST: page("a", "b"), patch("a"): {}})
    with pytest.raises(DeadlineError, match="no Secret could be written within 0 s"):
        await stored_secrets.rewrite(client, "")  # type: ignore[arg-type]
