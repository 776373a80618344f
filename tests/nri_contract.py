# SPDX-License-Identifier: Apache-2.0
"""What the plugin relies on in NRI: holds for the fake (functional) and for containerd (tests/k8s)."""

from __future__ import annotations

import re

from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from kata_bridge.nri.plugin import Plugin
from kata_bridge.nri.session import NriSnapshot


class NriRecorder:
    """It records `snapshots`, `events` as (kind, sandbox), and the requests `created` and `validated`.

    It responds with `creation` and `validation`.
    """

    def __init__(self) -> None:
        self.snapshots: list[NriSnapshot] = []
        self.events: list[tuple[str, PodSandbox]] = []
        self.created: list[tuple[PodSandbox, Container]] = []
        self.validated: list[tuple[Container, ContainerAdjustment]] = []
        self.creation: ContainerAdjustment | Deny = ContainerAdjustment()
        self.validation: Deny | None = None

    def names(self, what: str) -> list[str]:
        """The names of the pods with such an event."""
        return [pod.name for kind, pod in self.events if kind == what]

    def pod(self, what: str, name: str) -> PodSandbox | None:
        """The last pod of that name with such an event."""
        return next((pod for kind, pod in reversed(self.events) if (kind, pod.name) == (what, name)), None)

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        self.snapshots.append(snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("run", pod))

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("stop", pod))

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("remove", pod))

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        self.created.append((pod, container))
        return self.creation

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Deny | None:
        self.validated.append((container, adjustment))
        return self.validation


def check_registered(plugin: Plugin, handler: NriRecorder) -> NriSnapshot:
    """Check a first registration; return what it brought: the running sandboxes and their containers."""
    assert plugin.is_connected
    assert re.match(r"containerd v?2\.", plugin.runtime)
    assert plugin.missing == frozenset()
    (snapshot,) = handler.snapshots
    assert {each.pod_sandbox_id for each in snapshot.containers} <= {each.id for each in snapshot.pods}
    return snapshot


def check_life(handler: NriRecorder, name: str) -> None:
    """Check the events of a pod that was started, stopped and removed while the plugin was registered."""
    events = [(kind, pod) for kind, pod in handler.events if pod.name == name]
    assert list(dict.fromkeys(kind for kind, _ in events)) == ["run", "stop", "remove"]
    assert handler.names("run").count(name) == 1
    assert len({(pod.id, pod.uid, pod.namespace) for _, pod in events}) == 1


def check_validated(handler: NriRecorder, adjustment: ContainerAdjustment) -> None:
    """Check the last validation: of the container that was created last, with its adjustment."""
    container, validated = handler.validated[-1]
    pod, created = handler.created[-1]
    assert (container.id, container.pod_sandbox_id) == (created.id, pod.id)
    assert validated.mounts == adjustment.mounts
