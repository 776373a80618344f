# SPDX-License-Identifier: Apache-2.0
"""After any history of a server, a reflector converges and has reported every change."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import is_older
from devkit.kube import wire as wire
from tests.unit.daemonkit.kube.reflector_environment import EVERY, ReflectorEnvironment, expired, refused

pytestmark = pytest.mark.asyncio


_NAMES = st.sampled_from(["a", "b", "c"])


_ACTS = st.one_of(
    st.tuples(st.just("put"), _NAMES),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.just("remake"), _NAMES),
    st.tuples(st.just("fail"), st.sampled_from([400, 401, 403, 404, 410, 429, 500, 503])),
    st.tuples(st.just("unreachable"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("bump"), st.integers(1, 100)),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("expire"), st.none()),
    st.tuples(st.just("stall"), st.booleans()),
    st.tuples(st.just("relist from the past"), st.integers(0, 5)),
    st.tuples(st.just("inject"), st.binary(min_size=1, max_size=30)),
    st.tuples(st.just("replay"), st.integers(0, 5)),
    st.tuples(st.just("pass"), st.sampled_from([0.005, 0.1, 1, 30, 100, 1000])),
)


async def _act(env: ReflectorEnvironment, act: str, value: Any, past: list[dict[str, Any]]) -> None:
    transport = env.transport
    match act:
        case "put":
            env.put(value, n=str(env.storage.revision))
        case "delete":
            env.delete(value)
        case "remake":
            env.delete(value)
            env.put(value)
        case "fail":
            transport.failures.append(refused(value))
        case "unreachable":
            transport.failures.append(UnreachableError("connect"))
        case "compact":
            env.storage.compact()
        case "bump":
            env.storage.bump(value)
        case "cut":
            transport.cut()
        case "expire":
            transport.inject(expired())
        case "stall":
            transport.is_stalled = value
        case "relist from the past":
            transport.stale_list = past[-value - 1] if value < len(past) else None
            transport.inject(expired())
            await asyncio.sleep(1)
        case "inject":
            transport.inject(value + b"\n")
        case "replay":
            for page in past[-value:]:
                for item in page["items"]:
                    transport.inject(wire.event("MODIFIED", item))
        case "pass":
            await asyncio.sleep(value)
    past.append(wire.list_page(env.storage, EVERY, {}))


@settings(max_examples=200, deadline=None)
@given(st.lists(_ACTS, max_size=30), st.booleans())
async def test_the_store_converges_after_any_faults(acts: list[tuple[str, Any]], asks_early: bool) -> None:
    env = ReflectorEnvironment(Timing(page_size=2), asks_early=asks_early)
    past: list[dict[str, Any]] = []
    highest = ""
    async with env.running():
        for act, value in acts:
            await _act(env, act, value, past)
            version = env.reflector.resource_version
            assert not is_older(version, highest)
            highest = version or highest
        env.transport.heal()
        # The longest back-off, a stalled watch left, and the last list.
        await asyncio.sleep(200)
        assert env.reflector.synced.is_set()
        assert env.is_converged()
        assert env.mirror == dict(env.reflector.objects)
        # A watch may have ended just before its bookmark, and the next one brings it a minute later.
        assert env.age_s() <= 121
