# SPDX-License-Identifier: Apache-2.0
"""Reads what the kubelet reports of itself: /metrics and /configz, which change nothing.

vn-agent's own rights cover both: `nodes/metrics`, and `nodes/configz` or `nodes/proxy`. No tenant reads one.
"""

import asyncio

from daemonkit.tasks import Tasks
from vnagent.core.kubelet_facts import KubeletFacts, configured_of, gates_of, version_of
from vnagent.upstream.page_fetch import FetchError, fetch_page
from vnagent.upstream.pool import UpstreamPool

# Of the facts that /status shows. A kubelet is upgraded a few times a year.
MAX_AGE_S = 600.0
# After a kubelet that did not answer. One that answered with a refusal would do it again.
RETRY_S = 60.0
# READY waits so long: the kubelet's usual answer takes milliseconds.
FIRST_READ_S = 0.5


class FactsReader:
    """Reads at the start, before vn-agent is ready. Later only for a reader of /status who finds them old:
    nothing in vn-agent depends on them.

    A page that cannot be read leaves its facts unknown.
    """

    def __init__(self, pool: UpstreamPool, tasks: Tasks) -> None:
        self._pool = pool
        self._tasks = tasks
        self._is_reading = False
        self._read_at_s = float("-inf")
        self.is_first_read_done = False
        self.facts = KubeletFacts()

    async def read_first(self) -> None:
        """Begin to read, and wait for `FIRST_READ_S` at most."""
        await asyncio.wait([self._begin()], timeout=FIRST_READ_S)
        self.is_first_read_done = True

    def current(self) -> KubeletFacts:
        """The facts that are known. Old ones are read again meanwhile, for the next caller."""
        age_s = self._now_s() - self._read_at_s
        if not self._is_reading and age_s >= (RETRY_S if self.facts.has_no_answer else MAX_AGE_S):
            self._begin()
        return self.facts

    def _begin(self) -> "asyncio.Task[None]":
        self._is_reading = True
        return self._tasks.spawn(self.read(), "kubelet facts")

    async def read(self) -> None:
        """Read both pages now."""
        try:
            problems: list[str] = []
            metrics = await self._page("/metrics", problems)
            handlers, port = configured_of(await self._page("/configz", problems))
        finally:
            self._is_reading, self._read_at_s = False, self._now_s()
        before, version = self.facts.version, version_of(metrics)
        self.facts = KubeletFacts(version, gates_of(metrics), handlers, port, tuple(problems))
        if None not in (before, version) and before != version:
            self._pool.stream_protocols.forget()

    def _now_s(self) -> float:
        return self._pool.poller.loop.time()

    async def _page(self, path: str, problems: list[str]) -> bytes:
        try:
            return await fetch_page(self._pool, path)
        except FetchError as error:
            problems.append(f"{path}: {error.reason}")
            return b""
