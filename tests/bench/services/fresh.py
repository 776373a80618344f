# SPDX-License-Identifier: Apache-2.0
"""Fresh guests: from the moment that a guest's agent is attached until all rules are live in it."""

import time
from dataclasses import dataclass

from tests.bench.services.changing import LIVE_S
from tests.bench.services.cluster import BenchTenant
from tests.bench.services.node import BenchNode, events
from tests.bench.services.watcher import wait_for_all


@dataclass(frozen=True, slots=True)
class Fresh:
    """One guest that was added alone, with its tenant synced in kubeproxy-ext or not."""

    attach_ms: float
    """From the start of its agent's process until it was attached."""
    live_ms: float
    """From then until the rules were live."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Many guests with attached agents when kubeproxy-ext starts."""

    wall_ms: float
    """From the moment that the first guest appears in it until the last guest has its rules."""
    synced_ms: float
    """Of that, from the moment that it has synced the tenant's Services."""
    start_s: float
    """From the start of its process until then."""
    renders: int


def one(node: BenchNode, tenant: BenchTenant) -> Fresh:
    """Add one guest, and remove it again. kubeproxy-ext must run."""
    (guest,) = node.add(1)
    try:
        guest.watcher.arm(_last_endpoint(tenant))
        node.start_agent(guest)
        (seen_s,) = wait_for_all([guest.watcher], LIVE_S)
        live_s = seen_s - time.monotonic() + time.time()
        attached_s = node.wait_attached([guest])[guest.id]
        return Fresh((attached_s - guest.started_s) * 1e3, (live_s - attached_s) * 1e3)
    finally:
        node.remove(guest)


def at_once(node: BenchNode, tenant: BenchTenant, count: int) -> AtOnce:
    """Replace all guests by `count` new ones, and start kubeproxy-ext before them."""
    renew(node, count)
    for guest in node.guests:
        guest.watcher.arm(_last_endpoint(tenant))
    try:
        node.proxy.start()
        seen_s = max(wait_for_all([guest.watcher for guest in node.guests], LIVE_S))
        live_s = seen_s - time.monotonic() + time.time()
        node.proxy.wait_ready()
        node.wait_current()
        renders = int(node.proxy.metric("vcnode_kubeproxyext_renders_total"))
        known = next(events(node.proxy.log, "tenant synced"))
        # `after_s` counts from when the tenant's first guest appeared and its Services were requested.
        appeared_s = known["at"] - known["after_s"]
        return AtOnce(
            (live_s - appeared_s) * 1e3,
            (live_s - known["at"]) * 1e3,
            live_s - node.proxy.started_s,
            renders,
        )
    finally:
        node.proxy.stop()


def renew(node: BenchNode, count: int) -> None:
    """Replace all guests by `count` new ones, with their agents attached."""
    for guest in tuple(node.guests):
        node.remove(guest)
    made = node.add(count)
    for guest in made:
        node.start_agent(guest)
    node.wait_attached(made)


def _last_endpoint(tenant: BenchTenant) -> str:
    """One endpoint stands for all: a table's rules come in one transaction."""
    return list(tenant.services.values())[-1][-1]
