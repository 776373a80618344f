# SPDX-License-Identifier: Apache-2.0
import asyncio
import json

import pytest

from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import SECRETS, Status
from daemonkit.tasks import Tasks
from devkit.kube.storage import Object
from devkit.syncer.fake_control_plane import FakeControlPlane
from devkit.syncer.fake_view import TENANT
from syncer.core.plan import Wait
from syncer.tokens.documents import PodTokens
from syncer.tokens.token_requests import RenewalFailure
from tenancy import keys
from tests.steps import finish, most_in_a_step
from tests.unit.syncer.tokens.environment import MARK, NAMESPACE, SECRET, TOKEN, TokensEnvironment, action


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
async def test_a_tenant_pays_for_its_renewals() -> None:
    """Its API server decides how often there is one, and what it answers."""
    async with TokensEnvironment() as env:
        account, charged = TenantScheduler().open("a"), list[bool]()

        def issue(path: str, body: Object) -> Object:
            charged.append(account.is_in_step)
            return body | {"status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}

        tenant = FakeControlPlane(on_token=issue)
        env.issuer.add_tenant(TENANT, tenant, env.cluster, run=account.run)
        assert await env.issue(action(seconds=3600)) is None
        await asyncio.sleep(2 * 3600)
        assert charged == [False, True, True]


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
async def test_orphans_are_removed() -> None:
    async with TokensEnvironment() as env:
        for name in ("web-0", "web-1", "web-2"):
            assert await env.issue(action(name)) is None
        assert env.remove_orphans("uid-web-1") == 0  # their pods are being made
        await asyncio.sleep(61)
        assert env.remove_orphans("uid-web-1") == 2
        await asyncio.sleep(1)
        assert [env.secret(f"web-{n}") is not None for n in range(3)] == [False, True, False]


@pytest.mark.asyncio
async def test_orphans_are_looked_for_in_steps() -> None:
    """10 000 pods were looked at in one step of up to 30 ms."""
    async with TokensEnvironment() as env:
        assert await env.issue(action()) is None
        secret = env.secret()
        assert secret is not None
        for number in range(2_000):
            labels = {**secret["metadata"]["labels"], keys.POD_TOKENS: f"uid-{number}"}
            env.issuer.secret_seen({**secret, "metadata": {**secret["metadata"], "labels": labels}})
        await asyncio.sleep(61)
        looked = list[str]()

        def may_have_pod(pod: PodTokens) -> bool:
            looked.append(pod.uid)
            return True

        assert most_in_a_step(env.issuer.remove_orphans(TENANT.key, may_have_pod), lambda: len(looked)) <= 500
        assert len(looked) == 2_001


@pytest.mark.asyncio
async def test_orphans_are_looked_for_after_a_change_alone() -> None:
    """Each patrol looked at the pod of each token: 5 000 times a minute while nothing happened."""
    async with TokensEnvironment() as env:
        looked, gone = list[str](), set[str]()

        def may_have_pod(pod: PodTokens) -> bool:
            looked.append(pod.name)
            return pod.name not in gone

        def patrol(state: int) -> list[str]:
            looked.clear()
            finish(env.issuer.remove_orphans(TENANT.key, may_have_pod, state))
            return sorted(looked)

        assert await env.issue(action("web-0")) is None
        assert patrol(1) == []
        await asyncio.sleep(61)
        assert [patrol(1), patrol(1), patrol(2)] == [["web-0"], [], ["web-0"]]
        assert await env.issue(action("web-1")) is None
        assert [patrol(2), patrol(2)] == [["web-0"], ["web-0"]]  # one is young
        await asyncio.sleep(61)
        assert [patrol(2), patrol(2)] == [["web-0", "web-1"], []]
        gone.add("web-1")
        assert patrol(3) == ["web-0", "web-1"]
        await asyncio.sleep(1)
        assert env.secret("web-1") is None
        assert [patrol(3), patrol(3)] == [["web-0"], []]
        # One that is made again while it leaves stays, and is looked at.
        env.issuer.pod_gone(TENANT.key, "uid-web-0")
        assert await env.issue(action("web-0")) is None
        assert patrol(4) == ["web-0"]


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
        assert len(env.issuer._due) <= 130  # noqa: SLF001 - what is remembered has no reader outside


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
        finish(env.issuer.remove_tenant(TENANT.key))
        env.take_requests()
        await asyncio.sleep(10_000)
        assert env.take_requests() == []
        assert await env.issue(action()) == Wait("TokensNotIssued", "the tenant is not synced any more")


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
