# SPDX-License-Identifier: Apache-2.0
"""Which fault a source of sandboxes has while it is away, and since when; in virtual time."""

import asyncio
from collections.abc import Callable

import pytest

from daemonkit.remedies import Cause
from daemonkit.tasks import Tasks
from kata_bridge.cri.client import CRI_HOP
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import SandboxObservation
from kata_bridge.sandboxes.discovery import CRI, LIST_S, RETRY_S, Discovery, ListError

pytestmark = pytest.mark.asyncio

AWAY = CRI_HOP.fault(Cause.MISSING, "ListPodSandbox: no such file or directory", "/run/x.sock")


class ScriptedLister:
    """Raises `error`, or lists nothing; `hangs` has it wait for ever."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False

    async def sandboxes(self, is_known: Callable[[str], bool]) -> tuple[SandboxObservation, ...]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return ()


def discovery_of(lister: ScriptedLister) -> Discovery:
    return Discovery(
        lambda _: None,
        lambda: None,
        KataBridgeMetrics(),
        has_nri=False,
        lister=lister,
        directory=None,
        interval_s=30.0,
    )


async def test_a_fault_lasts_from_the_first_failure_to_success() -> None:
    lister, tasks = ScriptedLister(), Tasks("test")
    lister.error = ListError("x", AWAY)
    discovery = discovery_of(lister)
    tasks.spawn(discovery.run(), "run")
    await asyncio.sleep(5.5)
    fault, seconds = discovery.faults()[CRI]
    assert fault == AWAY
    assert seconds == pytest.approx(5.5)
    lister.error = None
    await asyncio.sleep(RETRY_S)
    assert discovery.faults() == {}
    assert discovery.has_synced
    assert await tasks.close(1.0) == ()


@pytest.mark.parametrize(
    ("error", "cause", "text"),
    [
        (None, Cause.TIMEOUT, "CRI: no answer within 10 s"),
        (ListError("/run/x.sock: Permission denied"), Cause.DENIED, "CRI: /run/x.sock: Permission denied"),
        (ValueError("a bug"), Cause.OTHER, "CRI: ValueError: a bug"),
    ],
)
async def test_every_failed_list_has_a_fault(error: Exception | None, cause: Cause, text: str) -> None:
    lister, tasks = ScriptedLister(), Tasks("test")
    lister.error, lister.hangs = error, error is None
    discovery = discovery_of(lister)
    tasks.spawn(discovery.run(), "run")
    await asyncio.sleep(LIST_S + 0.1)
    fault, _ = discovery.faults()[CRI]
    assert (fault.cause, fault.text) == (cause, text)
    assert not discovery.has_synced
    assert await tasks.close(1.0) == ()
