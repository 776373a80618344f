# SPDX-License-Identifier: Apache-2.0
"""What is sent for tokens, and what becomes of the answers: nothing of one tenant reaches another's."""

import asyncio
import base64
import io
import logging
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import SECRETS, Status
from daemonkit.token_bucket import TokenBucket
from devkit.syncer.fake_control_plane import FakeControlPlane
from devkit.syncer.fake_view import TENANT
from syncer.core.plan import Conflict, IssueTokens, TokenRequest, Wait
from syncer.core.write_rate import Charge
from tests.unit.conftest import VirtualTimeLoop
from tests.unit.syncer.tokens.environment import MARK, NAMESPACE, SECRET, TOKEN, TokensEnvironment, action


@pytest.mark.asyncio
async def test_issue_after_a_restart_takes_the_secret_over() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.restarted()
        env.take_requests()
        assert await env.issue(action()) is None
        assert env.take_requests() == [
            f"POST {TOKEN}",
            f"POST {SECRET}",
            f"GET {SECRET}/web-0-token",
            f"PATCH {SECRET}/web-0-token",
        ]
        assert env.tokens() == {"token-0": f"{MARK}.2"}


@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "is_given_back"), [(403, True), (500, False)])
async def test_a_refused_secret_costs_no_rate(code: int, is_given_back: bool) -> None:
    """Else the tokens of the tenant's other pods would wait for what an admission webhook denies."""
    async with TokensEnvironment() as env:
        bucket = TokenBucket(10_000, 0, 10_000, 0)

        def may_write(_: str, __: str, size_bytes: int) -> Charge:
            bucket.debit(size_bytes)
            return Charge(bucket, size_bytes)

        env.issuer.add_tenant(TENANT, env.tenant, None, may_write)
        env.cluster.failures.append(ApiError(Status(code=code, reason="", message="denied")))
        assert isinstance(await env.issue(action()), Wait)
        assert (bucket.tokens == 10_000) == is_given_back
        assert await env.issue(action()) is None
        assert bucket.tokens < 10_000


@pytest.mark.asyncio
async def test_secret_of_the_tenant_stands_in_the_way() -> None:
    async with TokensEnvironment() as env:
        foreign = {"metadata": {"name": "web-0-token", "namespace": NAMESPACE}, "data": {"a": "Yg=="}}
        before = env.cluster.storage.create(SECRETS, foreign)
        assert await env.issue(action()) == Conflict(
            f"Secret {NAMESPACE}/web-0-token is not of the tokens of the pod"
        )
        assert env.secret() == before


@pytest.mark.asyncio
async def test_another_secret_of_the_name_is_not_deleted() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.cluster.storage.delete(SECRETS, NAMESPACE, "web-0-token")
        env.cluster.storage.create(SECRETS, {"metadata": {"name": "web-0-token", "namespace": NAMESPACE}})
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(60)
        assert env.secret() is not None


@pytest.mark.parametrize("code", [401, 403, 404, 409, 500])
@pytest.mark.asyncio
async def test_refused_request_says_so_to_the_pod(code: int) -> None:
    async with TokensEnvironment() as env:
        env.refusal = lambda: ApiError(Status(code, "x", f"{MARK}"))
        found = await env.issue(action())
        assert isinstance(found, Wait)
        assert found.reason == "TokensNotIssued"
        assert f"{code}" in found.message
        assert "service account default/builder" in found.message
        assert env.secret() is None


@pytest.mark.parametrize("refusals", range(6))
@pytest.mark.parametrize("code", [401, 403, 404, 409, 429, 500, 502, 503, 504])
@pytest.mark.asyncio
async def test_an_api_server_that_ends_is_asked_again(code: int, refusals: int) -> None:
    """It refuses for some moments; who goes on to refuse is asked no more often for many tokens."""
    async with TokensEnvironment() as env:
        left = refusals

        def refusal() -> ApiError | None:
            nonlocal left
            left -= 1
            return ApiError(Status(code, "x", "the client connection is closing")) if left >= 0 else None

        env.refusal = refusal
        repeats = 3 if code == 429 or code >= 500 else 0
        found = await env.issue(action(audiences=("", "a", "b")))
        assert (found is None) is (refusals <= repeats)
        asked = [each for each in env.take_requests() if each == f"POST {TOKEN}"]
        assert len(asked) == (3 + refusals if refusals <= repeats else 1 + repeats)
        assert asyncio.get_running_loop().time() <= 1.5


@pytest.mark.asyncio
async def test_nothing_is_written_into_a_foreign_namespace() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.is_owned = False
        before = env.secret()
        assert await env.issue(action("web-1")) == Wait(
            "TokensNotIssued", "namespace default is not in the super cluster"
        )
        await asyncio.sleep(4000)
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(100)
        assert env.secret() == before


@pytest.mark.parametrize(
    "asked",
    [
        IssueTokens("default", "web-0", "u", "../../x", "s", (TokenRequest("k", "", 600),)),
        IssueTokens("default", "web-0", "u", "builder", "../x", (TokenRequest("k", "", 600),)),
        IssueTokens("a/b", "web-0", "u", "builder", "s", (TokenRequest("k", "", 600),)),
        IssueTokens("default", "web-0", "u", "builder", "s", ()),
        IssueTokens("default", "web-0", "u", "builder", "s", (TokenRequest("k", "", 600),) * 33),
    ],
)
@pytest.mark.asyncio
async def test_names_and_numbers_are_bounded(asked: IssueTokens) -> None:
    async with TokensEnvironment() as env:
        assert isinstance(await env.issue(asked), Wait)
        assert env.take_requests() == []


@pytest.mark.asyncio
async def test_late_token_is_not_for_the_next_tenant() -> None:
    """The API server of a tenant keeps a token back until another tenant has its key and namespace."""
    async with TokensEnvironment() as env:
        env.tenant.delay_s = 30.0
        another = replace(TENANT, uid="another")
        asyncio.get_running_loop().call_later(1, env.issuer.add_tenant, another, FakeControlPlane())
        assert await env.issue(action()) == Wait("TokensNotIssued", "the tenant is not synced any more")
        assert (env.issued, env.cluster.requests) == (1, [])


_FAULTS = st.sampled_from(
    [
        None,
        UnreachableError(f"{MARK}: broken"),
        ApiError(Status(403, MARK, f"token {MARK} is refused")),
        ApiError(Status(409, "AlreadyExists", MARK)),
        ApiError(Status(422, "Invalid", f"data: Invalid value: {MARK}")),
        ApiError(Status(500, "x", base64.b64encode(MARK.encode()).decode())),
    ]
)


@settings(max_examples=50, deadline=None)
@given(st.lists(_FAULTS, max_size=8), st.lists(_FAULTS, max_size=8))
def test_no_text_of_a_token_is_seen(tenant: list[Exception | None], cluster: list[Exception | None]) -> None:
    """In no log line, repr, message or exception, whatever the servers answer."""
    seen = io.StringIO()
    logs.setup(level="debug", stream=seen, is_json=True, clock=lambda: 0.0)

    async def run() -> None:
        async with TokensEnvironment() as env:
            env.tenant.failures = [each for each in tenant if each is not None]
            env.cluster.failures = [each for each in cluster if each is not None]
            for number in range(3):
                seen.write(repr(await env.issue(action(f"web-{number}"))))
            await asyncio.sleep(10_000)
            seen.write(repr(vars(env.issuer)))
            seen.write(repr(env.reports))
            for secret in (env.secret(f"web-{n}") for n in range(3)):
                seen.write(repr((secret or {}).get("metadata")))
            env.issuer.pod_gone(TENANT.key, "uid-web-0")
            await asyncio.sleep(100)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
    logging.getLogger().handlers.clear()
    assert MARK not in seen.getvalue()
    assert base64.b64encode(MARK.encode()).decode()[:12] not in seen.getvalue()
