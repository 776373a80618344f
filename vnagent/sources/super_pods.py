# SPDX-License-Identifier: Apache-2.0
"""The super cluster as the source of pods: a watch of the pods that are bound to this node.

Needs packaging/rbac/options/vn-agent-pods.yaml. A kubelet's own credential has that by the node
authorizer, which allows it for `spec.nodeName=<its node>` alone; RBAC cannot say so.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import PODS, Key, ObjectMeta
from daemonkit.remedies import Hop, HopKind
from tenancy.ownership import ContainerPolicy, Owned, owned_pod
from vnagent.core.source_status import Failure
from vnagent.pages.podlist import OwnershipAnnotations
from vnagent.sources.port import PublishPods


class _OwnershipMetadata(msgspec.Struct, frozen=True):
    annotations: OwnershipAnnotations


class _OwnedPod(msgspec.Struct, frozen=True):
    """What is kept of a pod that cannot be read: whose it is."""

    metadata: _OwnershipMetadata


class _SuperContainer(msgspec.Struct, frozen=True):
    name: str
    image: str = ""


class _WatchedSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_SuperContainer, ...] | None = None
    init_containers: tuple[_SuperContainer, ...] | None = None
    ephemeral_containers: tuple[_SuperContainer, ...] | None = None


HOP = Hop(
    HopKind.API_SERVER, "super cluster", "pods.kubeconfigFile", "packaging/rbac/options/vn-agent-pods.yaml"
)


class WatchedPod(msgspec.Struct, frozen=True):
    """The part of a v1 Pod that decides its tenant."""

    metadata: ObjectMeta
    spec: _WatchedSpec = _WatchedSpec()

    @property
    def images(self) -> dict[str, str]:
        """The image of each of its containers, init and ephemeral ones included, by the container's name."""
        spec = self.spec
        every = (spec.containers, spec.init_containers, spec.ephemeral_containers)
        return {container.name: container.image for containers in every for container in containers or ()}


class SuperPods:
    """Publishes this node's tenant pods at each change."""

    def __init__(
        self,
        client: Transport,
        node_name: str,
        policy: ContainerPolicy,
        publish: PublishPods,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._publish = publish
        self._clock = clock
        self._reflector = Reflector(
            client,
            PODS,
            WatchedPod,
            field_selector=f"spec.nodeName={node_name}",
            kept=_OwnedPod,
            on_change=lambda _: self._publish_all(),
            timing=timing,
            clock=clock,
        )

    def age_s(self) -> float | None:
        """Seconds since the API server last confirmed the published pods; None before that."""
        return self._reflector.age_s()

    def failure(self) -> Failure | None:
        """Why the watch of pods has failed."""
        failure = self._reflector.failure
        if failure is None:
            return None
        return Failure(failure.fault(HOP, self._reflector.name), self._clock() - failure.since)

    async def run(self) -> None:
        """Watch this node's pods until cancelled."""
        await self._reflector.run()

    def _publish_all(self) -> None:
        owned: list[Owned] = []
        problems: list[str] = []
        for key, failure in self._reflector.decode_failures.items():
            problems.append(f"pod {_shown(key)}: {failure.reason}")
            if isinstance(failure.kept, _OwnedPod):
                # It exists, so its tenant gets 500 and not 404.
                annotations = failure.kept.metadata.annotations.mapping()
                found = owned_pod(*key, failure.uid, annotations, (), self._policy)
                if isinstance(found, Owned):
                    problem = failure.reason if failure.is_too_large else f"unreadable: {failure.reason}"
                    owned.append(replace(found, problem=problem))
        for key, pod in self._reflector.objects.items():
            meta = pod.metadata
            images = pod.images
            found = owned_pod(
                meta.namespace, meta.name, meta.uid, meta.annotations, images, self._policy, images
            )
            if isinstance(found, Owned):
                owned.append(found)
            elif found is not None:
                problems.append(f"pod {_shown(key)}: {found.reason}")
        self._publish(tuple(owned), tuple(problems))


def _shown(key: Key) -> str:
    return repr(f"{key[0]}/{key[1]}"[:320])
