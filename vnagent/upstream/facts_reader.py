# SPDX-License-Identifier: Apache-2.0
"""Reads what the kubelet reports of itself: /metrics and /configz, which change nothing.

vn-agent's own rights cover both: `nodes/metrics`, and `nodes/configz` or `nodes/proxy`. No tenant reads one.
"""

import asyncio

from vnagent.core.kubelet_facts import KubeletFacts, configured_of, gates_of, version_of
from vnagent.upstream.kubelet import KubeletPool
from vnagent.upstream.page_fetch import FetchError, fetch_page

# A kubelet of another version is a new process, with which the first handshake is a full one. It is upgraded
# a few times a year, and nothing in vn-agent waits for these facts. A missing right is the operator's choice.
PERIOD_S = 600.0
# After another failure.
RETRY_S = 60.0


class FactsReader:
    """Reads at start, and each `PERIOD_S` in which there was a full handshake.

    A page that cannot be read leaves its facts unknown.
    """

    def __init__(self, pool: KubeletPool) -> None:
        self._pool = pool
        self.facts = KubeletFacts()

    async def run(self) -> None:
        """Read, until cancelled."""
        handshakes = -1
        while True:
            if self.facts.problems or self._pool.full_count != handshakes:
                await self.read()
                handshakes = self._pool.full_count
            is_due = any(not each.endswith("-refused") for each in self.facts.problems)
            await asyncio.sleep(RETRY_S if is_due else PERIOD_S)

    async def read(self) -> None:
        """Read both pages now."""
        problems: list[str] = []
        metrics = await self._page("/metrics", problems)
        handlers, port = configured_of(await self._page("/configz", problems))
        before, version = self.facts.version, version_of(metrics)
        self.facts = KubeletFacts(version, gates_of(metrics), handlers, port, tuple(problems))
        if None not in (before, version) and before != version:
            self._pool.stream_protocols.forget()

    async def _page(self, path: str, problems: list[str]) -> bytes:
        try:
            return await fetch_page(self._pool, path)
        except FetchError as error:
            problems.append(f"{path}: {error.reason}")
            return b""
