# SPDX-License-Identifier: Apache-2.0
"""A pod at the start gate, and the facts that the gate reads of guests and containers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kata_bridge.guests.driver import GuestDriver
from kata_bridge.nri.messages import Mount
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.decision import (
    Blocked,
    ContainerFacts,
    MountPoint,
    Reason,
    RulesState,
    is_ready,
)


@dataclass(slots=True)
class GatedPod:
    """A living sandbox; `started_s` is None where its start was not observed."""

    sandbox: Sandbox
    readiness: str | None
    started_s: float | None
    observed_s: float
    needs_met: asyncio.Event = field(default_factory=asyncio.Event)
    # Containers that are blocked, by name. The key "" stands for those that were blocked, or may have been,
    # before the connection to the runtime.
    blocked_containers: dict[str, tuple[ContainerFacts, Blocked | None]] = field(default_factory=dict)
    # Start of the present span in which one of them is blocked; no meaning while none is. A new sandbox or a
    # restart of kata-bridge begins anew.
    blocked_since_s: float = 0.0
    # The containers that were blocked and have not been allowed since.
    not_allowed: set[str] = field(default_factory=set)

    @property
    def waits_for_network(self) -> bool:
        """Whether it is a tenant's, annotated that its network is not ready."""
        sandbox = self.sandbox
        return bool(sandbox.tenant) and not sandbox.is_host_network and not is_ready(self.readiness)

    @property
    def reasons(self) -> frozenset[Reason]:
        """Why its containers are blocked; empty if none has been blocked since our start."""
        decisions = (decision for _, decision in self.blocked_containers.values() if decision is not None)
        return frozenset(blocker.reason for decision in decisions for blocker in decision.blockers)

    @property
    def log_fields(self) -> dict[str, object]:
        sandbox = self.sandbox
        return {
            "sandbox": sandbox.id,
            "tenant": sandbox.tenant,
            "pod": f"{sandbox.namespace}/{sandbox.name}",
        }

    def set_certificate_available(self) -> None:
        """No blocked container lacks the agent's certificate any more."""
        self.blocked_containers = {
            name: (replace(container, lacks_certificate=False), decision)
            for name, (container, decision) in self.blocked_containers.items()
        }

    def status(self, now_s: float) -> dict[str, object]:
        """What /status reports of a blocked pod."""
        messages = [
            decision.message for _, decision in self.blocked_containers.values() if decision is not None
        ]
        return {
            "id": self.sandbox.id,
            "pod": f"{self.sandbox.namespace}/{self.sandbox.name}",
            "tenant": self.sandbox.tenant,
            "containers": sorted(name for name in self.blocked_containers if name),
            "forSeconds": round(now_s - self.blocked_since_s, 3),
            "message": messages[0] if messages else "",
        }


def rules_state(driver: GuestDriver, now_s: float) -> RulesState:
    """The observed rules of a guest."""
    machine = driver.machine
    observed, desired = machine.observed, machine.desired
    return RulesState(
        digest=None if observed is None else observed.digest,
        has_drifted=observed is not None and observed.has_drifted,
        desired=None if desired is None else desired.digest,
        lag_s=0.0 if driver.behind_since_s is None else now_s - driver.behind_since_s,
        was_lost=machine.drift is not None,
        not_injectable=machine.not_injectable,
        refused=machine.refused,
        unreachable=machine.unreachable,
    )


def mount_points(mounts: Sequence[Mount]) -> list[MountPoint]:
    return [MountPoint(mount.destination, mount.source) for mount in mounts]
