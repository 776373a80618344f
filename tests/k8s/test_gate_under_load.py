# SPDX-License-Identifier: Apache-2.0
"""Pods start while kata-bridge is ended again and again, and dnsconfig too; guests boot slowly, some go
deaf, some are never reached, and a network is ready only now and then. The first act of each
container is a connect and a lookup, the lookup at its network's own server.

`make gate-soak PODS=10000` starts as many in waves (`--gate-pods`, `--gate-wave`): most waves are in one life
of kata-bridge, so that what it does not let go of shows; some are with all the unrest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.k8s.ring import gating
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.gate_load import (
    AGENT_SHARE,
    IMAGE,
    SIDECAR,
    Footprint,
    Load,
    LoadedNode,
    ObservedPod,
    Unrest,
    placed,
    pods_with_events,
    unrest,
    wait_cleared,
)
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import KATA, STOCK, say
from tests.k8s.ring.tenants import RingTenant

_EVENTS_S = 20.0
# One wave of so many has unrest, the first among them.
_UNREST_EVERY = 5
# Python's allocator gives pages back late; what one pod leaves behind for good is more than this.
_GROWTH_KIB, _GROWTH_A_POD_KIB = 6 << 10, 2
# Calls under way and pods that wait.
_DESCRIPTORS = 32

_UNREST = ("kata-bridge", "dnsconfig", "network")
_MANY = 60
_NOT_READY = "network blue is not ready"


@pytest.fixture(scope="module")
def place(ring: Ring, acme: RingTenant) -> Iterator[LoadedNode]:
    with placed(ring, acme) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(0)  # `Load.run` has a deadline that goes with the number of pods
def test_no_container_runs_before_rules_and_resolver(
    place: LoadedNode, acme: RingTenant, request: pytest.FixtureRequest
) -> None:
    pods: int = request.config.getoption("--gate-pods")
    wave: int = request.config.getoption("--gate-wave")
    luck = random.Random(20)  # noqa: S311 - the order of a test
    load = Load(place, acme, luck)
    counts: Counter[str] = Counter()
    base: tuple[int, Footprint] | None = None
    with load.lose() as lost:
        wait_for("their sandboxes", lambda: has_sandboxes(place, lost), timeout_s=60)
        for number, first in enumerate(range(0, pods, wave)):
            numbers = range(first, min(first + wave, pods))
            has_unrest = number % _UNREST_EVERY == 0
            check_wave(place, load, numbers, counts, has_unrest=has_unrest)
            wait_cleared(place)
            now = Footprint.of(place)
            words = "with unrest" if has_unrest else "quiet"
            say(f"{numbers.stop} pods, the last {len(numbers)} {words}: {now}; {took(load.ended[first:])}")
            if has_unrest:
                base = None
            elif base is None:
                base = numbers.stop, now
            else:
                check_growth(base[1], now, numbers.stop - base[0])
        assert {seen.pod.status()["phase"] for seen in lost} == {"Pending"}
    waited = sum(bool(seen.messages) for seen in load.ended)
    say(f"{dict(counts)}, {len(load.blocked())} pods refused, {waited} seen waiting")
    assert load.phases == {"Succeeded": pods}
    # Else none of this has been tried.
    assert counts["kata-bridge"] > min(pods, wave) // 50
    assert counts["dnsconfig"] > 0
    assert counts["network"] > 0
    kinds = Counter(seen.kind for seen in load.ended)
    assert kinds.keys() == {KATA, STOCK, IMAGE, SIDECAR}
    assert kinds[IMAGE] + kinds[SIDECAR] >= pods // AGENT_SHARE
    assert {seen.network for seen in load.ended} == set(place.networks)
    # A wave of a few pods may be over before the network closes.
    if min(pods, wave) >= _MANY:
        assert any(_NOT_READY in message for seen in load.ended for message in seen.messages)
    for seen in lost:
        assert any("the pod's guest cannot be reached" in message for message in seen.messages), seen.messages


def check_wave(
    place: LoadedNode, load: Load, numbers: Sequence[int], counts: Counter[str], *, has_unrest: bool
) -> None:
    """Start these pods; none starts early, and each that waits has its message."""
    began = len(load.ended)
    with ExitStack() as stack:
        for name, each in zip(
            _UNREST, unrest(place, load.luck, load.ends_s) if has_unrest else (), strict=False
        ):
            # Called when it is over.
            stack.callback(count, counts, name, each)
            stack.enter_context(each)
        load.run(numbers)
    place.node.bridge.wait_ready()
    assert load.failures == []
    assert load.stuck == {}
    assert load.started_ungated() == []
    seen = [*load.ended[began:], *load.lost]
    assert [message for each in seen for message in load.unexpected_messages(each)] == []
    wait_for(
        "an Event with a reason on each pod that was refused",
        lambda: load.blocked() <= pods_with_events(place.node.ring, load.namespace),
        timeout_s=_EVENTS_S,
    )


def count(counts: Counter[str], name: str, unrest: Unrest) -> None:
    """Add up how often it happened."""
    counts[name] += unrest.count


def check_growth(base: Footprint, now: Footprint, pods: int) -> None:
    """One life of kata-bridge keeps nothing of pods that are gone."""
    assert now.pid == base.pid
    assert now.rss_kib <= base.rss_kib + _GROWTH_KIB + _GROWTH_A_POD_KIB * pods, (base, now)
    assert now.descriptors <= base.descriptors + _DESCRIPTORS, (base, now)


def has_sandboxes(place: LoadedNode, lost: Sequence[ObservedPod]) -> bool:
    """Whether kata-bridge knows of all these pods."""
    known = {guest["pod"] for guest in place.node.bridge.status().get("guests", [])}
    return {seen.pod.full_name for seen in lost} <= known


def took(ended: Sequence[ObservedPod]) -> str:
    """How long pods took from their creation to their end."""
    times = sorted(seen.took_s for seen in ended)
    return f"p50 {times[len(times) // 2]:.1f} s, p99 {times[len(times) * 99 // 100]:.1f} s"


def test_the_first_act_notices_an_ungated_start(place: LoadedNode, acme: RingTenant) -> None:
    """Else the test above would prove nothing."""
    node = place.node
    node.ring.syncer.create_namespace(acme, "unguarded")
    namespace = acme.super_namespace("unguarded")
    node.stock.boot_s = lambda _: 20.0
    place.networks["blue"].set_phase("Pending", "it is still being made")
    spec = place.first_act("blue")
    made = gating.gated_pod(node.ring, acme, "early", STOCK, spec, namespace=namespace, network="blue")
    try:
        made.wait("Succeeded")
        message = made.status()["containerStatuses"][0]["state"]["terminated"]["message"]
        assert "connect:" in message
        assert "lookup:" in message
        # The message ends with the resolv.conf that it had instead.
        assert f"nameserver {place.networks['blue'].address}\n" not in message
    finally:
        node.ring.super_cluster.api.delete(made.path)
        place.networks["blue"].set_phase("Ready")
