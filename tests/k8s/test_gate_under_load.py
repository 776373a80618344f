# SPDX-License-Identifier: Apache-2.0
"""Pods start while kata-bridge and dnsconfig are stopped repeatedly; guests boot slowly, some become
unreachable, some are never reached, and a network is ready only now and then. Each container first connects
and looks up a name at its network's own server.

`make gate-soak PODS=10000` starts as many in waves (`--gate-pods`, `--gate-wave`): most waves are in one life
of kata-bridge, so that leaks show; some have all the disruptions.
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
    Disruption,
    Footprint,
    Load,
    LoadedNode,
    ObservedPod,
    disruptions,
    loaded_node,
    pods_with_events,
    wait_cleared,
)
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import KATA, STOCK, print_figure
from tests.k8s.ring.tenants import RingTenant

_EVENTS_S = 20.0
# One wave in so many is disrupted, the first among them.
_DISRUPTED_EVERY = 5
# Python's allocator gives pages back late; a leak per pod exceeds this.
_GROWTH_KIB, _GROWTH_A_POD_KIB = 6 << 10, 2
# Calls under way and pods that wait.
_DESCRIPTORS = 32

_DISRUPTIONS = ("kata-bridge", "dnsconfig", "network")
_MANY = 60
_NOT_READY = "network blue is not ready"


@pytest.fixture(scope="module")
def loaded(ring: Ring, acme: RingTenant) -> Iterator[LoadedNode]:
    with loaded_node(ring, acme) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(0)  # `Load.run` has a deadline that goes with the number of pods
def test_no_container_runs_before_rules_and_resolver(
    loaded: LoadedNode, acme: RingTenant, request: pytest.FixtureRequest
) -> None:
    pods: int = request.config.getoption("--gate-pods")
    wave: int = request.config.getoption("--gate-wave")
    rng = random.Random(20)  # noqa: S311 - the order of a test
    load = Load(loaded, acme, rng)
    counts: Counter[str] = Counter()
    base: tuple[int, Footprint] | None = None
    with load.with_unreachable() as unreachable:
        wait_for("their sandboxes", lambda: has_sandboxes(loaded, unreachable), timeout_s=60)
        for number, first in enumerate(range(0, pods, wave)):
            numbers = range(first, min(first + wave, pods))
            is_disrupted = number % _DISRUPTED_EVERY == 0
            check_wave(loaded, load, numbers, counts, is_disrupted=is_disrupted)
            wait_cleared(loaded)
            now = Footprint.of(loaded)
            words = "disrupted" if is_disrupted else "quiet"
            print_figure(
                f"{numbers.stop} pods, the last {len(numbers)} {words}: {now}; {took(load.ended[first:])}"
            )
            if is_disrupted:
                base = None
            elif base is None:
                base = numbers.stop, now
            else:
                check_growth(base[1], now, numbers.stop - base[0])
        assert {seen.pod.status()["phase"] for seen in unreachable} == {"Pending"}
    waited = sum(bool(seen.messages) for seen in load.ended)
    print_figure(f"{dict(counts)}, {len(load.blocked())} pods blocked, {waited} seen waiting")
    assert load.phases == {"Succeeded": pods}
    # Otherwise no disruption was tested.
    assert counts["kata-bridge"] > min(pods, wave) // 50
    assert counts["dnsconfig"] > 0
    assert counts["network"] > 0
    kinds = Counter(seen.kind for seen in load.ended)
    assert kinds.keys() == {KATA, STOCK, IMAGE, SIDECAR}
    assert kinds[IMAGE] + kinds[SIDECAR] >= pods // AGENT_SHARE
    assert {seen.network for seen in load.ended} == set(loaded.networks)
    # A wave of a few pods may be over before the network closes.
    if min(pods, wave) >= _MANY:
        assert any(_NOT_READY in message for seen in load.ended for message in seen.messages)
    for seen in unreachable:
        assert any("the pod's guest cannot be reached" in message for message in seen.messages), seen.messages


def check_wave(
    loaded: LoadedNode, load: Load, numbers: Sequence[int], counts: Counter[str], *, is_disrupted: bool
) -> None:
    """Start these pods; none starts early, and each that waits has its message."""
    began = len(load.ended)
    with ExitStack() as stack:
        for name, each in zip(
            _DISRUPTIONS, disruptions(loaded, load.rng, load.ends_s) if is_disrupted else (), strict=False
        ):
            # Called after it ends.
            stack.callback(count, counts, name, each)
            stack.enter_context(each)
        load.run(numbers)
    loaded.node.bridge.wait_ready()
    assert load.failures == []
    assert load.stuck == {}
    assert load.started_ungated() == []
    seen = [*load.ended[began:], *load.unreachable]
    assert [message for each in seen for message in load.unexpected_messages(each)] == []
    wait_for(
        "an Event with a reason on each blocked pod",
        lambda: load.blocked() <= pods_with_events(loaded.node.ring, load.namespace),
        timeout_s=_EVENTS_S,
    )


def count(counts: Counter[str], name: str, disruption: Disruption) -> None:
    """Add up the disruptions of one kind."""
    counts[name] += disruption.count


def check_growth(base: Footprint, now: Footprint, pods: int) -> None:
    """One life of kata-bridge keeps nothing of deleted pods."""
    assert now.pid == base.pid
    assert now.rss_kib <= base.rss_kib + _GROWTH_KIB + _GROWTH_A_POD_KIB * pods, (base, now)
    assert now.descriptors <= base.descriptors + _DESCRIPTORS, (base, now)


def has_sandboxes(loaded: LoadedNode, unreachable: Sequence[ObservedPod]) -> bool:
    """Whether kata-bridge has all these pods as guests."""
    known = {guest["pod"] for guest in loaded.node.bridge.status().get("guests", [])}
    return {seen.pod.full_name for seen in unreachable} <= known


def took(ended: Sequence[ObservedPod]) -> str:
    """How long pods took from their creation to their end."""
    times = sorted(seen.took_s for seen in ended)
    return f"p50 {times[len(times) // 2]:.1f} s, p99 {times[len(times) * 99 // 100]:.1f} s"


def test_first_connection_notices_an_ungated_start(loaded: LoadedNode, acme: RingTenant) -> None:
    """Otherwise the test above would prove nothing."""
    node = loaded.node
    node.ring.syncer.create_namespace(acme, "unguarded")
    namespace = acme.super_namespace("unguarded")
    node.stock.boot_s = lambda _: 20.0
    loaded.networks["blue"].set_phase("Pending", "it is still being made")
    spec = loaded.first_connection("blue")
    made = gating.gated_pod(node.ring, acme, "early", STOCK, spec, namespace=namespace, network="blue")
    try:
        made.wait("Succeeded")
        message = made.status()["containerStatuses"][0]["state"]["terminated"]["message"]
        assert "connect:" in message
        assert "lookup:" in message
        # The message ends with the resolv.conf that it had instead.
        assert f"nameserver {loaded.networks['blue'].address}\n" not in message
    finally:
        node.ring.super_cluster.api.delete(made.path)
        loaded.networks["blue"].set_phase("Ready")
