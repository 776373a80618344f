# SPDX-License-Identifier: Apache-2.0
"""The last known state on disk, for a start while the API server is away.

One file, replaced as a whole: the watched objects, and each pod's last resolver. Its modification
time is when the API server last confirmed it. The state is only for that start: a full disk and a
damaged file are reported, and the daemon goes on.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from daemonkit.files.saved_state import MAX_AGE_S, SavedFiles
from daemonkit.metrics import Counter
from dnsconfig.cluster.objects import (
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from dnsconfig.cluster.snapshot import NamespaceSnapshot, Snapshot
from dnsconfig.resolve.network import RevocableAddresses
from dnsconfig.retention.resolver_retention import ResolverRetention, RevokedAddress
from dnsconfig.retention.sandbox_networks import KnownSandbox, SandboxNetworks

# The age of a state from the future is unknown: the clock was ahead when it was written, or is behind
# now, as after a start without a battery. Up to this much, the clock was set right between two starts.
MAX_AHEAD_S = 300.0
# Under churn the file is written this often; after a restart the state is that much too old.
INTERVAL_S = 10.0
# How often unchanged state is confirmed.
CONFIRM_S = 60.0

_NAME = "state.json"
_VERSION = 1

_REVOKED_KEYS = {"is_confirmed": "isTold", "reduced_text": "bare"}  # saved as: keys of version 1 of the file


class SavedRevokedAddress(msgspec.Struct, rename=_REVOKED_KEYS):
    """A `RevokedAddress`; `since` is in seconds since the epoch."""

    since: int
    is_confirmed: bool
    reduced_text: str


class SavedSandbox(msgspec.Struct, rename="camel"):
    """A `KnownSandbox`."""

    networks: tuple[str, ...]
    is_guest: bool
    since: str


# The keys of version 1 of the file, where they differ from the fields.
_KEYS = {
    "virtual_clusters": "clusters",
    "synced_namespaces": "heard",  # saved as: a key of version 1 of the file
    "texts": "given",
    "text_networks": "givenNetworks",
    "revocable": "origins",
    "revoked": "losses",
    "sandboxes": "attachments",
}


class SavedObjects(msgspec.Struct, rename=_KEYS):
    """The content of the file. `services` and `networks` are those of `synced_namespaces`.

    `texts`, `text_networks`, `revocable` and `revoked` are a `ResolverRetention`, `sandboxes` a
    `SandboxNetworks`; both by the UIDs of pods.
    """

    pods: list[PodObject]
    namespaces: list[NamespaceObject]
    virtual_clusters: list[VirtualClusterObject]
    services: list[ServiceObject]
    networks: list[NetworkObject]
    synced_namespaces: list[str]
    texts: dict[str, str]
    version: int = _VERSION
    revocable: dict[str, RevocableAddresses] = msgspec.field(default_factory=dict)
    revoked: dict[str, SavedRevokedAddress] = msgspec.field(default_factory=dict)
    text_networks: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    sandboxes: dict[str, SavedSandbox] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoredState:
    """What was saved, and how many seconds ago the API server last confirmed it."""

    snapshot: Snapshot
    texts: dict[str, str] = field(default_factory=dict)
    age_s: float = 0.0
    revocable: dict[str, RevocableAddresses] = field(default_factory=dict)
    revoked: dict[str, SavedRevokedAddress] = field(default_factory=dict)
    text_networks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sandboxes: dict[str, SavedSandbox] = field(default_factory=dict)

    def expires_at(self, now: float) -> float:
        """When the snapshot is too old to decide anything, by the clock of `now`."""
        return now + MAX_AGE_S - self.age_s

    def retention(self, hold_s: float, wall_at_zero: float, now: float) -> ResolverRetention:
        """The saved retention. If the wall clock moved back, times of revocation are clamped to now.

        An older version did not save the networks of a text. Its cluster IPs have the network; a text
        without any is dropped, as it may be of another network than the pod's current one.
        """
        retention = ResolverRetention(hold_s)
        older = {uid: (each.network,) for uid, each in self.revocable.items()}
        networks = (older | self.text_networks).items()
        retention.networks |= {uid: each for uid, each in networks if uid in self.texts}
        retention.texts |= {uid: text for uid, text in self.texts.items() if uid in retention.networks}
        retention.revocable |= self.revocable
        retention.revoked |= {
            uid: RevokedAddress(min(now, each.since - wall_at_zero), each.is_confirmed, each.reduced_text)
            for uid, each in self.revoked.items()
        }
        return retention

    def sandbox_networks(self) -> SandboxNetworks:
        """The saved networks; an older version saved none, and those of the pods' texts count."""
        found = SandboxNetworks()
        found.known |= {
            uid: KnownSandbox(each.networks, each.is_guest, each.since)
            for uid, each in self.sandboxes.items()
            if each.networks
        }
        for uid, each in self.revocable.items():
            found.infer(uid, (each.network,))
        return found


def objects_to_save(
    snapshot: Snapshot,
    retention: ResolverRetention,
    sandbox_networks: SandboxNetworks,
    wall_at_zero: float,
) -> SavedObjects:
    """The content of the file for a fully synced snapshot.

    `wall_at_zero` is the wall clock's time when the clock of `retention` was zero.
    """
    contents = snapshot.contents.values()
    return SavedObjects(
        list((snapshot.pods or {}).values()),
        list((snapshot.namespaces or {}).values()),
        list((snapshot.virtual_clusters or {}).values()),
        [service for each in contents for service in each.services.values()],
        [network for each in contents for network in each.networks.values()],
        sorted(snapshot.contents),
        dict(retention.texts),
        revocable=dict(retention.revocable),
        revoked={
            # Rounded down by half a second more, as the two clocks are read one after the other: a later
            # time would restore a removed address for a moment after a restart.
            uid: SavedRevokedAddress(
                math.floor(each.since + wall_at_zero - 0.5), each.is_confirmed, each.reduced_text
            )
            for uid, each in retention.revoked.items()
        },
        text_networks=dict(retention.networks),
        sandboxes={
            uid: SavedSandbox(each.networks, each.is_guest, each.since)
            for uid, each in sandbox_networks.known.items()
        },
    )


def snapshot_of(saved: SavedObjects) -> Snapshot:
    """The saved objects as a snapshot."""
    contents = {
        name: NamespaceSnapshot(
            {each.metadata.name: each for each in saved.services if each.metadata.namespace == name},
            {each.metadata.name: each for each in saved.networks if each.metadata.namespace == name},
        )
        for name in saved.synced_namespaces
    }
    return Snapshot(
        {each.metadata.name: each for each in saved.namespaces},
        {(each.metadata.namespace, each.metadata.name): each for each in saved.pods},
        {(each.metadata.namespace, each.metadata.name): each for each in saved.virtual_clusters},
        contents,
    )


class SavedStateFile:
    """The file in one directory. A pod takes 500 bytes and its text 200; a node has some hundreds.

    `now` is a monotonic clock, `wall` the wall clock.
    """

    def __init__(
        self,
        directory: Path,
        errors: Counter,
        *,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = SavedFiles(directory, errors, max_ahead_s=MAX_AHEAD_S, wall=wall)
        self._wall = wall
        self._now = now
        self._written = b""
        self._written_at = self._confirmed_at = float("-inf")

    def prepare(self) -> None:
        """Create the directory; remove files of a killed writer. Raises OSError."""
        self._files.prepare()

    def load(self) -> RestoredState | None:
        """Load the state; None without a usable one. Blocks: only for the start."""
        loaded = self._files.load(
            _NAME,
            lambda data: msgspec.json.decode(data, type=SavedObjects),
            lambda saved: saved.version == _VERSION,
        )
        if loaded is None:
            return None
        saved = loaded.value
        return RestoredState(
            snapshot_of(saved),
            saved.texts,
            loaded.age_s,
            saved.revocable,
            saved.revoked,
            saved.text_networks,
            saved.sandboxes,
        )

    async def save(self, state: SavedObjects, age_s: float, *, is_last: bool = False) -> None:
        """Write changed state, or confirm unchanged one, where that is due.

        `age_s` is how long ago the API server last confirmed it.
        """
        now, confirmed_at = self._now(), self._wall() - age_s
        data = msgspec.json.encode(state)
        if data != self._written:
            if is_last or now - self._written_at >= INTERVAL_S:
                self._written_at = self._confirmed_at = now
                is_done = await self._files.write(_NAME, data, confirmed_at)
                self._written = data if is_done else b""
        elif is_last or now - self._confirmed_at >= CONFIRM_S:
            self._written_at = self._confirmed_at = now
            if not await self._files.confirm(_NAME, confirmed_at):
                self._written = b""
