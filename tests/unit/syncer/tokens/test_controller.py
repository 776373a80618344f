# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import io
import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import SECRETS, Status
from daemonkit.tasks import Tasks
from devkit.kube.storage import StatusError
from devkit.syncer.fake_control_plane import FakeControlPlane
from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.plan import Conflict, IssueTokens, TokenRequest, Wait
from syncer.tokens.controller import NotIssuedError, RenewalFailure, TokenIssuer
from syncer.tokens.documents import PodTokens
from tests.unit.conftest import VirtualTimeLoop

NAMESPACE = "vcs-7aad2b-tenant-00-default"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/builder/token"
EPOCH_S = 1_764_075_600.0
MARK = "SECRET-TEXT"


def action(name: str = "web-0", *, audiences: tuple[str, ...] = ("",), seconds: int = 3600) -> IssueTokens:
    tokens = tuple(TokenRequest(f"token-{n}", each, seconds) for n, each in enumerate(audiences))
    return IssueTokens("default", name, f"uid-{name}", "builder", f"{name}-token", tokens)


class TokensEnvironment:
    """A tenant and a super cluster on fakes. Tokens are numbered; `refusal` is how the tenant answers."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        """Tasks that failed: in a daemon each ends it."""
        self.tasks = Tasks("test", on_failure=lambda name, _: self.failed.append(name))
        self.tenant = FakeControlPlane(on_token=self._issue)
        self.cluster = FakeControlPlane()
        self.reports: list[tuple[str, Wait | None]] = []
        self.refusal: Callable[[], Exception] | None = None
        self.issued = 0
        self.granted_s: int | None = None
        self.is_owned = True
        self.skew_s = 0.0
        self.issuer = self.restarted()

    def restarted(self) -> TokenIssuer:
        """Another process, which knows nothing yet."""
        self.issuer = TokenIssuer(
            self.cluster,
            lambda key, namespace: self.is_owned and (key, namespace) == (TENANT.key, NAMESPACE),
            self._report,
            self.tasks,
            lambda: EPOCH_S + asyncio.get_running_loop().time() + self.skew_s,
            lambda: 1.0,
        )
        self.issuer.add_tenant(TENANT, self.tenant)
        return self.issuer

    async def _report(self, key: str, pod: PodTokens, error: NotIssuedError | None) -> None:
        assert key == TENANT.key
        self.reports.append((pod.name, None if error is None else error.wait))

    def _issue(self, path: str, body: Object) -> Object:
        assert path == TOKEN
        if self.refusal is not None:
            raise self.refusal()
        self.issued += 1
        seconds = self.granted_s or body["spec"]["expirationSeconds"]
        return body | {
            "spec": body["spec"] | {"expirationSeconds": seconds},
            "status": {"token": f"{MARK}.{self.issued}", "expirationTimestamp": "2020-01-01T00:00:00Z"},
        }

    async def __aenter__(self) -> "TokensEnvironment":
        self.tasks.spawn(self.issuer.run(), "timer")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.tasks.close(1.0) == ()

    async def issue(self, asked: IssueTokens) -> Wait | Conflict | None:
        return await self.issuer.issue(TENANT.key, asked, NAMESPACE)

    def secret(self, name: str = "web-0") -> Object | None:
        try:
            return self.cluster.storage.get(SECRETS, NAMESPACE, f"{name}-token")
        except StatusError:
            return None

    def tokens(self, name: str = "web-0") -> dict[str, str]:
        found = self.secret(name)
        assert found is not None
        return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}

    def take_requests(self) -> list[str]:
        found = [*self.tenant.requests, *self.cluster.requests]
        self.tenant.requests.clear()
        self.cluster.requests.clear()
        return found


@pytest.mark.asyncio
async def test_tokens_are_issued_once() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(audiences=("", "vault"))) is None
        assert env.tokens() == {"token-0": f"{MARK}.1", "token-1": f"{MARK}.2"}
        assert env.tenant.bodies[1]["spec"] == {
            "audiences": ["vault"],
            "expirationSeconds": 3600,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web-0", "uid": "uid-web-0"},
        }
        assert env.take_requests() == [f"POST {TOKEN}", f"POST {TOKEN}", f"POST {SECRET}"]
        assert await env.issue(action(audiences=("", "vault"))) is None
        assert env.take_requests() == []


@pytest.mark.asyncio
async def test_tokens_are_renewed_in_time() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(seconds=3600)) is None
        env.take_requests()
        await asyncio.sleep(0.75 * 3600)
        assert env.take_requests() == []
        await asyncio.sleep(0.05 * 3600)
        assert env.tokens() == {"token-0": f"{MARK}.2"}
        assert env.take_requests() == [f"POST {TOKEN}", f"PATCH {SECRET}/web-0-token"]
        await asyncio.sleep(0.8 * 3600)
        assert env.tokens() == {"token-0": f"{MARK}.3"}
        assert env.reports == []


@pytest.mark.asyncio
async def test_lifetime_is_what_the_tenant_grants() -> None:
    async with TokensEnvironment() as env:
        env.granted_s = 600
        assert await env.issue(action(seconds=7200)) is None
        await asyncio.sleep(481)
        assert env.issued == 2
        env.granted_s = 1  # a server that grants nearly nothing is asked once a minute
        await asyncio.sleep(480)
        before = env.issued
        await asyncio.sleep(600)
        assert env.issued - before <= 11


@pytest.mark.parametrize("skew_s", [-86_400.0, -1800.0, 1800.0, 86_400.0])
@pytest.mark.asyncio
async def test_clock_that_jumps_changes_nothing(skew_s: float) -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(seconds=3600)) is None
        await asyncio.sleep(1000)
        env.skew_s = skew_s
        await asyncio.sleep(1700)
        assert env.issued == 1
        await asyncio.sleep(180)
        assert env.issued == 2
        await asyncio.sleep(2700)
        assert env.issued == 2


@pytest.mark.asyncio
async def test_token_of_a_long_life_is_renewed_each_day() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(seconds=30 * 86400)) is None
        await asyncio.sleep(86400)
        assert env.issued == 2


@pytest.mark.asyncio
async def test_restart_finds_its_state_in_the_secrets() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        assert await env.issue(action("old", seconds=600)) is None
        secrets = [env.secret(), env.secret("old")]
        await env.tasks.close(1.0)
        await asyncio.sleep(1000)
        env.tasks = Tasks("again")
        issuer = env.restarted()
        env.tasks.spawn(issuer.run(), "timer")
        for each in secrets:
            assert each is not None
            issuer.secret_seen(each)
        env.take_requests()
        await asyncio.sleep(1)
        assert env.take_requests() == [f"POST {TOKEN}", f"PATCH {SECRET}/old-token"]
        assert await env.issue(action()) is None
        assert env.take_requests() == []
        await asyncio.sleep(1900)
        assert f"PATCH {SECRET}/web-0-token" in env.take_requests()


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
async def test_secret_of_the_tenant_stands_in_the_way() -> None:
    async with TokensEnvironment() as env:
        foreign = {"metadata": {"name": "web-0-token", "namespace": NAMESPACE}, "data": {"a": "Yg=="}}
        before = env.cluster.storage.create(SECRETS, foreign)
        assert await env.issue(action()) == Conflict(
            f"Secret {NAMESPACE}/web-0-token is not of the tokens of the pod"
        )
        assert env.secret() == before


@pytest.mark.asyncio
async def test_secret_goes_with_the_super_pod() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.cluster.failures = [UnreachableError("x"), ApiError(Status(500))]
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(0.1)
        assert env.secret() is not None
        await asyncio.sleep(60)
        assert env.secret() is None
        env.take_requests()
        await asyncio.sleep(10_000)
        assert env.take_requests() == []


@pytest.mark.asyncio
async def test_another_secret_of_the_name_is_not_deleted() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.cluster.storage.delete(SECRETS, NAMESPACE, "web-0-token")
        env.cluster.storage.create(SECRETS, {"metadata": {"name": "web-0-token", "namespace": NAMESPACE}})
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(60)
        assert env.secret() is not None


@pytest.mark.asyncio
async def test_orphans_are_removed() -> None:
    async with TokensEnvironment() as env:
        for name in ("web-0", "web-1", "web-2"):
            assert await env.issue(action(name)) is None
        assert env.issuer.remove_orphans(TENANT.key, {"uid-web-1"}) == 0  # their pods are being made
        await asyncio.sleep(61)
        assert env.issuer.remove_orphans(TENANT.key, {"uid-web-1"}) == 2
        await asyncio.sleep(1)
        assert [env.secret(f"web-{n}") is not None for n in range(3)] == [False, True, False]


@pytest.mark.asyncio
async def test_deleted_secret_is_made_again() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(audiences=("", "vault"))) is None
        deleted = env.cluster.storage.delete(SECRETS, NAMESPACE, "web-0-token")
        env.issuer.secret_gone(deleted)
        await asyncio.sleep(1)
        assert env.tokens() == {"token-0": f"{MARK}.3", "token-1": f"{MARK}.4"}


@pytest.mark.asyncio
async def test_deletion_that_was_missed_shows_at_the_renewal() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action(audiences=("", "vault"))) is None
        env.cluster.storage.delete(SECRETS, NAMESPACE, "web-0-token")
        await asyncio.sleep(3000)
        assert set(env.tokens()) == {"token-0", "token-1"}


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


@pytest.mark.asyncio
async def test_failed_renewals_are_repeated_and_reported() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        await asyncio.sleep(2500)
        env.refusal = lambda: ApiError(Status(403))
        await asyncio.sleep(500)
        message = (
            "no token for service account default/builder:"
            " the tenant's API server forbids TokenRequests (403)"
        )
        assert set(env.reports) == {("web-0", Wait("TokensNotIssued", message))}
        assert 5 <= len(env.reports) <= 12
        assert env.issuer.counts.failures == {RenewalFailure.TENANT_REFUSES: len(env.reports)}
        assert env.issuer.waiting(TENANT.key) == 1
        env.refusal = None
        await asyncio.sleep(61)
        assert env.tokens() == {"token-0": f"{MARK}.2"}
        assert env.reports[-1] == ("web-0", None)
        assert env.issuer.waiting(TENANT.key) == 0


@pytest.mark.asyncio
async def test_error_in_a_renewal_fails_alone() -> None:
    """A task that fails would end the daemon for all tenants. The error's text may have a token."""
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        await asyncio.sleep(2500)
        env.refusal = lambda: OverflowError(MARK)
        await asyncio.sleep(500)
        assert env.failed == []
        assert env.issuer.waiting(TENANT.key) == 1
        assert env.issuer.counts.failures.keys() == {RenewalFailure.TENANT_REFUSES}
        env.refusal = None
        await asyncio.sleep(61)
        assert env.tokens() == {"token-0": f"{MARK}.2"}
        assert env.issuer.waiting(TENANT.key) == 0


@pytest.mark.asyncio
async def test_renewals_of_pods_that_are_gone_are_forgotten() -> None:
    """Their times may be a day away, and a tenant makes and deletes pods without end."""
    async with TokensEnvironment() as env:
        for number in range(500):
            assert await env.issue(action(f"web-{number}")) is None
            env.issuer.pod_gone(TENANT.key, f"uid-web-{number}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert env.issuer.counts.removed == 500
        assert len(env.issuer._heap) <= 130  # noqa: SLF001 - what is remembered has no reader outside


@pytest.mark.asyncio
async def test_unreachable_tenant_is_not_asked_for_each_pod() -> None:
    async with TokensEnvironment() as env:
        for number in range(50):
            assert await env.issue(action(f"web-{number}")) is None
        await asyncio.sleep(2000)
        env.refusal = lambda: UnreachableError("x")
        env.take_requests()
        await asyncio.sleep(1600)
        assert len(env.take_requests()) <= 200  # four at a time, some 30 backoffs
        env.refusal = None
        await asyncio.sleep(80)
        assert env.issuer.waiting(TENANT.key) == 0
        assert env.issued == 100


@pytest.mark.asyncio
async def test_renewals_of_a_tenant_are_few_at_a_time() -> None:
    async with TokensEnvironment() as env:
        await asyncio.gather(*(env.issue(action(f"web-{n}")) for n in range(100)))
        env.tenant.most_in_flight = 0
        env.tenant.delay_s = 20.0
        await asyncio.sleep(3500)
        assert env.tenant.most_in_flight == 4
        assert env.issued == 200


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
async def test_other_replica_renewed() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        await asyncio.sleep(2000)
        env.restarted()
        assert await env.issue(action()) is None
        renewed = env.secret()
        assert renewed is not None
        env.issuer.secret_seen(renewed)
        env.take_requests()
        await asyncio.sleep(1)
        assert env.take_requests() == []


@pytest.mark.asyncio
async def test_removed_tenant_is_left_alone() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.issuer.remove_tenant(TENANT.key)
        env.take_requests()
        await asyncio.sleep(10_000)
        assert env.take_requests() == []
        assert await env.issue(action()) == Wait("TokensNotIssued", "the tenant is not synced any more")


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


@pytest.mark.asyncio
async def test_renewal_by_another_replica_ends_ours_in_the_queue() -> None:
    async with TokensEnvironment() as env:
        for number in range(8):
            assert await env.issue(action(f"web-{number}", seconds=600)) is None
        env.tenant.delay_s = 300.0
        await asyncio.sleep(481)  # four are asked for, and four wait
        other = env.issuer
        secrets = []
        for number in range(8):
            found = env.secret(f"web-{number}")
            assert found is not None
            annotations = found["metadata"]["annotations"]
            key = "vcnode.io/pod-token-lifetimes"
            value = json.loads(annotations[key])
            value["tokens"][0]["issued"] += 480
            annotations[key] = json.dumps(value)
            secrets.append(found)
        for found in secrets:
            other.secret_seen(found)
        await asyncio.sleep(400)
        assert env.issued == 8 + 4


@pytest.mark.asyncio
async def test_pod_that_is_made_again_keeps_its_secret() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        assert await env.issue(action()) is None
        await asyncio.sleep(60)
        assert env.secret() is not None
        await asyncio.sleep(2900)
        assert env.issued == 2


@pytest.mark.asyncio
async def test_pod_that_is_made_again_waits_for_a_removal() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.cluster.delay_s = 5.0
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(1)
        assert await env.issue(action()) == Wait(
            "TokensNotIssued", "tokens of an earlier pod are being removed"
        )
        await asyncio.sleep(5)
        assert env.secret() is None
        assert await env.issue(action()) is None
        assert env.tokens() == {"token-0": f"{MARK}.2"}


@pytest.mark.asyncio
async def test_removal_that_failed_is_ended_by_the_next_pod() -> None:
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        env.cluster.failures = [UnreachableError("x")]
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        await asyncio.sleep(1)
        assert await env.issue(action()) is None
        await asyncio.sleep(120)
        assert env.tokens() == {"token-0": f"{MARK}.1"}
