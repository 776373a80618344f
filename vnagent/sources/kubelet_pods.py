# SPDX-License-Identifier: Apache-2.0
"""The kubelet's own /pods as the source of pods: without a super cluster credential or a watch, and current
while the control plane is away."""

import asyncio

from daemonkit import logs
from daemonkit.remedies import Cause, Hop, HopKind
from daemonkit.tasks import Tasks
from tenancy.ownership import ContainerPolicy
from vnagent.core.replies import TEXTS
from vnagent.core.source_status import Failure
from vnagent.pages.page import PageError
from vnagent.pages.podlist import OwnedPods, OwnedPodsCollector, owned_pods
from vnagent.sources.port import Confirmation, PublishPods
from vnagent.upstream.page_fetch import INLINE_BYTES, FetchError, SplitList, fetch_list
from vnagent.upstream.pool import UpstreamPool

# Requests for unknown names share the next read, so that they cause no stream of reads. It begins after
# twenty times the duration of the last one: these reads take 1/20 of the time, and a list of 110 pods of
# 5 KB, which takes 20 ms, is read 2.5 times a second. A list that takes longer than MAX_REFRESH_S / 2 takes
# half of the time.
REFRESH_PART = 1 / 20
MIN_REFRESH_S = 0.1
MAX_REFRESH_S = 1.0
# How long a request waits for it. Kubernetes' own clients give up after 30 s at the earliest.
REFRESH_S = 10.0

_HOPS = {
    "kubelet": Hop(HopKind.KUBELET, "kubelet", "kubelet.address", "packaging/rbac/vn-agent.yaml"),
    "apiserver": Hop(
        HopKind.API_SERVER,
        "super API server",
        "superApiserver.kubeconfigFile",
        "packaging/rbac/options/vn-agent-apiserver-pages.yaml",
    ),
}
# By the failure in `FetchError.reason`, behind the hop.
_CAUSES = {
    "unreachable": Cause.UNREACHABLE,
    "untrusted": Cause.UNTRUSTED,
    "timeout": Cause.TIMEOUT,
    "broke-off": Cause.CLOSED,
    "malformed": Cause.MALFORMED,
    "refused": Cause.FORBIDDEN,
    "failed": Cause.OVERLOADED,
}

_log = logs.get(__name__)


class KubeletPods:
    """Reads /pods every `interval_s`, and sooner for a request with an unknown name."""

    def __init__(
        self,
        pool: UpstreamPool,
        policy: ContainerPolicy,
        interval_s: float,
        tasks: Tasks,
        publish: PublishPods,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._interval_s = interval_s
        self._tasks = tasks
        self._publish = publish
        self._reading: asyncio.Task[bool] | None = None
        self._begun_s = float("-inf")
        self._ended_s = float("-inf")
        self._took_s = 0.0
        # Done with the next read that begins; None without waiters.
        self._awaited: asyncio.Future[bool] | None = None
        self._confirmation = Confirmation(self._now)
        self._published: OwnedPods | None = None
        self._digest: int | None = None
        self._is_failing = False

    def _now(self) -> float:
        return self._pool.poller.loop.time()

    def age_s(self) -> float | None:
        return self._confirmation.age_s()

    def failure(self) -> Failure | None:
        return self._confirmation.failure()

    async def refresh(self) -> bool:
        """Wait for a read that begins from now on; return whether it succeeded within `REFRESH_S`."""
        if self._awaited is None:
            self._awaited = self._pool.poller.loop.create_future()
            self._tasks.spawn(self._begin_when_due(), "pods refresh")
        try:
            async with asyncio.timeout(REFRESH_S):
                return await asyncio.shield(self._awaited)
        except TimeoutError:
            return False

    async def _begin_when_due(self) -> None:
        """Begin the awaited read, unless the regular one begins before."""
        while self._awaited is not None:
            if self._reading is not None:
                await asyncio.shield(self._reading)
                continue
            due_in_s = self._due_s() - self._now()
            if due_in_s <= 0:
                await self.read()
                return
            await asyncio.sleep(due_in_s)

    def _due_s(self) -> float:
        """When the next read on demand may begin."""
        pause_s = min(max(MIN_REFRESH_S, self._took_s / REFRESH_PART), MAX_REFRESH_S)
        return max(self._begun_s + pause_s, self._ended_s + self._took_s)

    async def read(self) -> bool:
        """Read now, or join a read in progress; False if it failed."""
        if self._reading is None or self._reading.done():
            self._begun_s = self._now()
            # A later request may be for a pod that this read does not find.
            awaited, self._awaited = self._awaited, None
            self._reading = self._tasks.spawn(self._read_for(awaited), "pods")
        return await asyncio.shield(self._reading)

    async def _read_for(self, awaited: "asyncio.Future[bool] | None") -> bool:
        is_read = await self._read()
        if awaited is not None and not awaited.done():
            awaited.set_result(is_read)
        return is_read

    async def run(self) -> None:
        while True:
            await self.read()
            # While the kubelet is away it is polled more often.
            pause_s = min(1.0, self._interval_s) if self._is_failing else self._interval_s
            # A slow read takes half of the time at most.
            await asyncio.sleep(max(pause_s, self._took_s))

    async def _read(self) -> bool:
        try:
            self._publish_new(*await self._read_list())
        # Requests wait for this read. After a bug they get 503, and the index gets the next read.
        except Exception as error:  # noqa: BLE001 - one odd pod must not leave requests without an answer
            self._mark_failing(error)
            return False
        finally:
            self._reading = None
            self._ended_s = self._now()
            self._took_s = self._ended_s - self._begun_s
        self._confirmation.confirm()
        if self._is_failing:
            self._is_failing = False
            _log.info("pods are read from the kubelet again")
        return True

    async def _read_list(self) -> tuple[OwnedPods | None, int | None]:
        """The pods, and a digest of a short list; None for the published digest."""
        listed = await fetch_list(self._pool, "/pods", OwnedPodsCollector(self._policy))
        if isinstance(listed, SplitList):
            return listed.value, None
        # Most reads find no change. CPython's siphash is keyed, and a collision would only
        # delay a change until the next one.
        page, digest = listed.page, hash(listed.page)
        if digest == self._digest:
            return None, digest
        if len(page) > INLINE_BYTES:
            return await asyncio.to_thread(owned_pods, page, self._policy), digest
        return owned_pods(page, self._policy), digest

    def _publish_new(self, found: OwnedPods | None, digest: int | None) -> None:
        if found is not None and found != self._published:
            self._publish(*found)
            self._published = found
        self._digest = digest

    def _mark_failing(self, error: Exception) -> None:
        is_known = isinstance(error, (FetchError, PageError))
        message = str(error) if is_known else f"{type(error).__name__} in vn-agent, see its log"
        failure = error.reason.partition("-")[2] if isinstance(error, FetchError) else ""
        cause = _CAUSES.get(failure, Cause.OTHER)
        text = TEXTS.get(message, message)
        requests = self._pool.requests
        self._confirmation.fail(
            _HOPS[requests.hop].fault(cause, f"/pods: {text}", f"https://{requests.authority}")
        )
        if self._is_failing:
            return
        self._is_failing = True
        kept = self._published is not None
        if is_known:
            _log.warning("pods cannot be read from the kubelet", reason=error, kept=kept)
        else:
            _log.error("pods cannot be read", error=error, kept=kept, traceback=logs.trace(error))
