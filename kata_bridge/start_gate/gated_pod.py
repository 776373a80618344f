# SPDX-License-Identifier: Apache-2.0
"""A pod at the gate, and what the gate reads of guests and containers."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kata_bridge.guests.driver import GuestDriver
from kata_bridge.nri.messages import ContainerState, Mount
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.decision import Asking, Held, Kind, MountPoint, Rules, is_ready
from kata_bridge.start_gate.core.node_condition import LONG_S, Tally

LIVING = (
    ContainerState.CONTAINER_CREATED,
    ContainerState.CONTAINER_RUNNING,
    ContainerState.CONTAINER_PAUSED,
)


@dataclass(slots=True)
class PodAtGate:
    """A sandbox that lives; `began_s` is None where its start was not seen."""

    sandbox: Sandbox
    readiness: str | None
    began_s: float | None
    since_s: float
    is_open: bool = False
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    held: dict[str, tuple[Asking, Held | None]] = field(default_factory=dict)
    held_since_s: float = 0.0
    # The containers that were refused and have not been admitted since; `held` forgets them when it opens.
    refused: set[str] = field(default_factory=set)

    @property
    def waits_for_network(self) -> bool:
        """Whether it is a tenant's, and its annotation says that its network is not ready."""
        sandbox = self.sandbox
        return bool(sandbox.tenant) and not sandbox.is_host_network and not is_ready(self.readiness)

    @property
    def whose(self) -> dict[str, object]:
        """Fields of log lines."""
        sandbox = self.sandbox
        return {
            "sandbox": sandbox.id,
            "tenant": sandbox.tenant,
            "pod": f"{sandbox.namespace}/{sandbox.name}",
        }

    def has_certificate(self) -> None:
        """The certificate of its agent can be made: no container that was refused lacks it any more."""
        self.held = {
            name: (replace(asking, lacks_certificate=False), held)
            for name, (asking, held) in self.held.items()
        }

    def status(self, now_s: float) -> dict[str, object]:
        """What /status says of a pod that waits."""
        said = [held.text for _, held in self.held.values() if held is not None]
        return {
            "id": self.sandbox.id,
            "pod": f"{self.sandbox.namespace}/{self.sandbox.name}",
            "tenant": self.sandbox.tenant,
            "containers": sorted(name for name in self.held if name),
            "forSeconds": round(now_s - self.held_since_s, 3),
            "why": said[0] if said else "",
        }


def tally(pods: Iterable[PodAtGate], now_s: float) -> Tally:
    """How many of them wait for long, and for what."""
    kinds: Counter[Kind] = Counter()
    count = 0
    for pod in pods:
        reasons = {reason.kind for _, held in pod.held.values() if held for reason in held.reasons}
        if reasons and now_s - pod.held_since_s >= LONG_S:
            count += 1
            kinds.update(reasons)
    return Tally(count, kinds)


def rules_of(driver: GuestDriver, now_s: float) -> Rules:
    """What is known of a guest's rules."""
    machine = driver.machine
    held, desired = machine.observed, machine.desired
    return Rules(
        digest=None if held is None else held.digest,
        has_drifted=held is not None and held.has_drifted,
        desired=None if desired is None else desired.digest,
        behind_s=0.0 if driver.behind_since_s is None else now_s - driver.behind_since_s,
        was_lost=machine.drift is not None,
        not_injectable=machine.not_injectable,
        refused=machine.refused,
        unreachable=machine.unreachable,
    )


def points(mounts: Sequence[Mount]) -> list[MountPoint]:
    """Mounts as the core has them."""
    return [MountPoint(mount.destination, mount.source) for mount in mounts]
