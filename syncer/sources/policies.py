# SPDX-License-Identifier: Apache-2.0
"""The SyncPolicies of tenants, watched where the VirtualClusters are."""

from collections.abc import Callable, Sequence

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import Key, ObjectMeta, Resource
from daemonkit.kube.store import Change
from syncer.core.objects import Object
from syncer.core.tenant_cluster import TenantCluster
from syncer.policy.document import parse
from syncer.policy.sync_policy import DEFAULT, PolicyUnusable, SyncPolicy

SYNC_POLICIES = Resource("vcnode.io", "v1alpha1", "syncpolicies")
DEFAULT_NAME = "default"

_OBJECT = msgspec.json.Decoder(Object)


class _Metadata(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_METADATA = msgspec.json.Decoder(_Metadata)


class PolicyObject:
    """One SyncPolicy: what it says, or all that is wrong with it."""

    __slots__ = ("metadata", "parsed")

    def __init__(self, metadata: ObjectMeta, parsed: SyncPolicy | tuple[str, ...]) -> None:
        self.metadata = metadata
        self.parsed = parsed


def _parse(raw: msgspec.Raw | bytes) -> PolicyObject:
    return PolicyObject(_METADATA.decode(raw).metadata, parse(deep_json.decode(_OBJECT, raw)))


class Policies:
    """Answers which policy a tenant has; `on_change` is called when any has changed."""

    def __init__(
        self, meta_cluster: Transport, on_change: Callable[[], None], *, timing: Timing | None = None
    ) -> None:
        self._on_change = on_change
        self._has_synced = False
        self.reflector: Reflector[PolicyObject] = Reflector(
            meta_cluster,
            SYNC_POLICIES,
            _parse,
            may_be_absent=True,
            on_change=self._changed,
            timing=timing,
        )

    def _changed(self, _: Sequence[Change[PolicyObject]]) -> None:
        # Called for the first list before the reflector counts as synced.
        self._has_synced = True
        self._on_change()

    def of(self, tenant: TenantCluster) -> SyncPolicy | PolicyUnusable:
        """The policy, or why there is none: then nothing new goes down.

        A tenant whose VirtualCluster names no policy has the one named `default`, or else the built-in one.
        """
        return self.named((tenant.vc_namespace, tenant.policy))

    def named(self, where: Key) -> SyncPolicy | PolicyUnusable:
        """As `of`, by the policy's namespace and name."""
        if not self._has_synced:
            return PolicyUnusable("SyncPolicies are not synced")
        name = where[1]
        found = self.reflector.objects.get(where)
        if found is not None:
            if isinstance(found.parsed, SyncPolicy):
                return found.parsed
            return PolicyUnusable(f"SyncPolicy {name}: {'; '.join(found.parsed)}")
        problem = self.reflector.undecodable.get(where)
        if problem is not None:
            return PolicyUnusable(f"SyncPolicy {name}: {problem}")
        if name == DEFAULT_NAME:
            return DEFAULT
        return PolicyUnusable(f"SyncPolicy {name} does not exist")
