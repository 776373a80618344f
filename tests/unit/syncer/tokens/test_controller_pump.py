# SPDX-License-Identifier: Apache-2.0
"""Work for the tokens of all pods grows as the pods, their tokens and their Secrets do, and no faster."""

import asyncio
import json
from collections.abc import Callable

import pytest

from devkit.kube.storage import StatusError
from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.tokens.documents import MAX_TOKENS, parse_secret
from tenancy import keys
from tests.pump import ABSENT, Schema, Sizes, Text, peak_bytes, steps, superlinear
from tests.steps import finish
from tests.unit.conftest import VirtualTimeLoop
from tests.unit.syncer.tokens.environment import NAMESPACE, TokensEnvironment, action

_PODS, _TOKENS, _LEFT = "pods", "tokens", "pods that left"
_SECRET = Schema("Secret", {"metadata.namespace": NAMESPACE, "metadata.managedFields": ABSENT})


async def _serve(sizes: Sizes) -> None:
    """From the first tokens through renewals, a restart and a patrol to the end of all pods."""
    async with TokensEnvironment() as env:
        # One pod alone has the tokens that are pumped.
        assert sizes.get(_TOKENS, 0) < MAX_TOKENS
        audiences = tuple(f"a-{n}" for n in range(1 + sizes.get(_TOKENS, 0)))
        asked = [action("first", audiences=audiences)]
        asked += [action(f"p-{n}") for n in range(sizes.get(_PODS, 0))]
        left = [action(f"l-{n}") for n in range(sizes.get(_LEFT, 0))]
        for each in (*asked, *left):
            assert await env.issue(each) is None
            assert await env.issue(each) is None
        await asyncio.sleep(3_500.0)
        issuer = env.restarted()
        env.tasks.spawn(issuer.run(), "timer of another process")
        for each in (*asked, *left):
            secret = env.secret(each.name)
            assert secret is not None
            issuer.secret_seen(secret)
        uids = {each.uid for each in asked}
        for _ in issuer.remove_orphans(TENANT.key, lambda pod: pod.uid in uids):
            await asyncio.sleep(0)
        # The tenant refuses further tokens, and each pod is tried again.
        env.refusal = lambda: StatusError(403, "Forbidden", "no")
        await asyncio.sleep(2_900.0)
        assert issuer.waiting(TENANT.key) == len(asked)
        for each in asked:
            issuer.pod_gone(TENANT.key, each.uid)
        await asyncio.sleep(100.0)
        assert env.secret("first") is None
        finish(issuer.remove_tenant(TENANT.key))
        assert env.failed == []


def test_work_for_tokens_grows_with_pods_and_tokens() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_serve({_PODS: 1, _LEFT: 1}))  # what is made once

        def measure(sizes: Sizes) -> int:
            return steps(lambda: runner.run(_serve(sizes)))

        # A pod has at most 32 tokens.
        for places, sizes in (((_PODS, _LEFT), (3, 6, 12)), ((_TOKENS,), (7, 15, 31))):
            one, two, four = (measure(dict.fromkeys(places, size)) for size in sizes)
            assert four - two < 2.5 * (two - one), places


def _lifetimes(sizes: Sizes) -> str:
    token = {"key": "k", "audience": "a", "expirationSeconds": 3600, "grantedSeconds": 3600, "issued": 1.0}
    return json.dumps({"pod": "p", "serviceAccount": "s", "tokens": [token] * sizes.get(_TOKENS, 1)})


def _secret(sizes: Sizes) -> Object:
    """A Secret with the label, in which anything may stand."""
    found = _SECRET.object(sizes, text=Text)
    found["metadata"]["labels"] |= {keys.POD_TOKENS: "uid"}
    found["metadata"]["annotations"] |= {
        keys.CLUSTER: TENANT.key,
        keys.POD_TOKEN_LIFETIMES: _lifetimes(sizes),
    }
    return found


@pytest.mark.parametrize("measured", [steps, peak_bytes])
def test_work_and_memory_for_a_secret_grow_as_it_does(
    measured: Callable[[Callable[[], object]], int],
) -> None:
    places = (*_SECRET.places(), _TOKENS)

    def measure(sizes: Sizes) -> int:
        secret = _secret(sizes)
        return measured(lambda: parse_secret(secret))

    first, noise = (2, 4) if measured is steps else (16, 64 << 10)
    assert superlinear(measure, places, first=first, noise=noise) == []
