# SPDX-License-Identifier: Apache-2.0
"""Lists the sandboxes of a runtime by the CRI."""

from collections.abc import Callable
from dataclasses import replace

from kata_bridge.cri.client import CriClient, CriError
from kata_bridge.cri.info import network_namespace
from kata_bridge.cri.messages import (
    PodSandbox,
    PodSandboxMetadata,
    PodSandboxState,
    PodSandboxStatus,
    PodSandboxStatusResponse,
)
from kata_bridge.sandboxes.core.sandbox import SandboxObservation
from kata_bridge.sandboxes.discovery import ListError


class CriLister:
    """A `discovery.Lister`: one list, and one status for each living sandbox that is unknown."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def sandboxes(self, is_known: Callable[[str], bool]) -> tuple[SandboxObservation, ...]:
        try:
            items = await self._client.sandboxes()
            found = []
            for item in items:
                is_ready = item.state is PodSandboxState.SANDBOX_READY
                if not is_ready or is_known(item.id):
                    found.append(observation_of(item))
                    continue
                status = await self._client.sandbox(item.id, verbose=True)
                # None: it was removed since it was listed.
                if status is not None:
                    found.append(detailed(item, status))
        except CriError as error:
            raise ListError(str(error), error.fault) from None
        return tuple(found)


def observation_of(item: PodSandbox) -> SandboxObservation:
    """A sandbox as a list has it: without addresses and namespaces."""
    metadata = item.metadata or PodSandboxMetadata()
    return SandboxObservation(
        id=item.id,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        labels=item.labels,
        annotations=item.annotations,
        runtime_handler=item.runtime_handler,
        is_alive=item.state is PodSandboxState.SANDBOX_READY,
        attempt=metadata.attempt,
        created_at_ns=item.created_at,
    )


def detailed(item: PodSandbox, reply: PodSandboxStatusResponse) -> SandboxObservation:
    """The same, with the addresses and namespaces of its status."""
    status = reply.status or PodSandboxStatus()
    return replace(
        observation_of(item),
        ips=status.ips,
        netns=network_namespace(reply.info),
        is_host_network=status.is_host_network,
    )
