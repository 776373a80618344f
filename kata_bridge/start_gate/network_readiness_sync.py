# SPDX-License-Identifier: Apache-2.0
"""Re-reads the annotation network-readiness of pods that wait for their network."""

import asyncio
from collections.abc import Callable, Iterable

from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.super_cluster_writer import PodGoneError, SuperClusterWriter
from tenancy import keys

READINESS_S = 1.0


async def sync_network_readiness(
    super_cluster: SuperClusterWriter,
    waiting: Callable[[], Iterable[Sandbox]],
    set_readiness: Callable[[str, str | None], None],
) -> None:
    """Read the annotation of each waiting pod until it lets the pod start; never returns."""
    gone: set[str] = set()
    while True:
        sandboxes = {sandbox.id: sandbox for sandbox in waiting()}
        gone &= sandboxes.keys()
        for sandbox in sandboxes.values():
            if sandbox.id in gone:
                continue
            try:
                annotations = await super_cluster.annotations(sandbox)
            except PodGoneError:
                gone.add(sandbox.id)
                continue
            if annotations is not None:
                set_readiness(sandbox.id, annotations.get(keys.NETWORK_READINESS))
        await asyncio.sleep(READINESS_S)
