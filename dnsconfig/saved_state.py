# SPDX-License-Identifier: Apache-2.0
"""The last known state on disk, for a start while the API server is away.

One file, replaced whole: the objects as they were watched, and what each pod was last given. When it
was last confirmed is its modification time. Losing it costs only what it is for: a full disk is
reported and survived, a damaged file is reported and ignored.
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
from dnsconfig.cluster.snapshot import Picture, Place
from dnsconfig.resolve.network import Origin
from dnsconfig.retention.resolver_retention import Keeping, Loss
from dnsconfig.retention.sandbox_networks import Attachment, Attachments

# Of a state from the future nobody knows how old it is: the clock was ahead when it was written, or is
# behind now, as after a start without a battery, and then the node may have been off for weeks. That
# is as unknown as too old. So much is a clock that was set right between two starts.
MAX_AHEAD_S = 300.0
# Under churn it is written this often; a restart finds it that much too old.
INTERVAL_S = 10.0
# How often what did not change is confirmed.
CONFIRM_S = 60.0

_NAME = "state.json"
_VERSION = 1


class SavedLoss(msgspec.Struct, rename="camel"):
    """A `keeping.Loss`; since when is of the calendar."""

    since: int
    is_told: bool
    bare: str


class SavedAttachment(msgspec.Struct, rename="camel"):
    """An `attachments.Attachment`."""

    networks: tuple[str, ...]
    is_guest: bool
    since: str


class State(msgspec.Struct, rename="camel"):
    """What was known. `heard` are the namespaces whose Services and Networks these are.

    By the UIDs of pods are `given`, `given_networks`, `origins` and `losses`, as `keeping.Keeping` has
    them, and `attachments`.
    """

    pods: list[PodObject]
    namespaces: list[NamespaceObject]
    clusters: list[VirtualClusterObject]
    services: list[ServiceObject]
    networks: list[NetworkObject]
    heard: list[str]
    given: dict[str, str]
    version: int = _VERSION
    origins: dict[str, Origin] = msgspec.field(default_factory=dict)
    losses: dict[str, SavedLoss] = msgspec.field(default_factory=dict)
    given_networks: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    attachments: dict[str, SavedAttachment] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was saved, and how many seconds ago it was last confirmed."""

    picture: Picture
    given: dict[str, str] = field(default_factory=dict)
    age_s: float = 0.0
    origins: dict[str, Origin] = field(default_factory=dict)
    losses: dict[str, SavedLoss] = field(default_factory=dict)
    networks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attachments: dict[str, SavedAttachment] = field(default_factory=dict)

    def ends_at(self, now: float) -> float:
        """When it is too old to decide anything, by the clock of `now`."""
        return now + MAX_AGE_S - self.age_s


def state_of(picture: Picture, keeping: Keeping, attachments: Attachments, wall_at_zero: float) -> State:
    """What is saved of a picture of which nothing is unknown.

    `wall_at_zero` is the time of the calendar when the clock of `keeping` was zero.
    """
    places = picture.places.values()
    return State(
        list((picture.pods or {}).values()),
        list((picture.namespaces or {}).values()),
        list((picture.clusters or {}).values()),
        [service for place in places for service in place.services.values()],
        [network for place in places for network in place.networks.values()],
        sorted(picture.places),
        dict(keeping.given),
        origins=dict(keeping.origins),
        losses={
            # In whole seconds, as two clocks are never read at one moment, and never later than it was:
            # the next one would give back for a moment what this one has taken.
            uid: SavedLoss(math.floor(loss.since + wall_at_zero - 0.5), loss.is_told, loss.bare)
            for uid, loss in keeping.losses.items()
        },
        given_networks=dict(keeping.networks),
        attachments={
            uid: SavedAttachment(each.networks, each.is_guest, each.since)
            for uid, each in attachments.known.items()
        },
    )


def keeping_of(restored: "Restored", wall_at_zero: float, now: float) -> Keeping:
    """The way back. A clock of the calendar that was set back makes no loss of the future.

    An older version did not write down which networks a text is for. Those of the Service whose
    addresses are in it are known; of a text with none it is not, and what may be of another network than
    the pod is in now is nothing to keep.
    """
    keeping = Keeping()
    older = {uid: (origin.network,) for uid, origin in restored.origins.items()}
    keeping.networks |= {
        uid: networks for uid, networks in (older | restored.networks).items() if uid in restored.given
    }
    keeping.given |= {uid: text for uid, text in restored.given.items() if uid in keeping.networks}
    keeping.origins |= restored.origins
    keeping.losses |= {
        uid: Loss(min(now, loss.since - wall_at_zero), loss.is_told, loss.bare)
        for uid, loss in restored.losses.items()
    }
    return keeping


def attachments_of(restored: "Restored") -> Attachments:
    """The way back. Where an older version wrote none, the networks of what pods were given count."""
    attachments = Attachments()
    attachments.known |= {
        uid: Attachment(each.networks, each.is_guest, each.since)
        for uid, each in restored.attachments.items()
        if each.networks
    }
    for uid, origin in restored.origins.items():
        attachments.given(uid, (origin.network,))
    return attachments


def picture_of(state: State) -> Picture:
    """The way back."""
    places = {
        name: Place(
            {each.metadata.name: each for each in state.services if each.metadata.namespace == name},
            {each.metadata.name: each for each in state.networks if each.metadata.namespace == name},
        )
        for name in state.heard
    }
    return Picture(
        {each.metadata.name: each for each in state.namespaces},
        {(each.metadata.namespace, each.metadata.name): each for each in state.pods},
        {(each.metadata.namespace, each.metadata.name): each for each in state.clusters},
        places,
    )


class SavedState:
    """The file of one directory. A pod takes 500 bytes and its text 200; a node has a few hundred.

    `now` and `wall` are clocks, monotonic and of the calendar.
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
        """Make the directory; remove what a killed writer left. Raises OSError."""
        self._files.prepare()

    def load(self) -> Restored | None:
        """What was saved; None if there is nothing that can be used. For the start: it blocks."""
        loaded = self._files.load(
            _NAME,
            lambda data: msgspec.json.decode(data, type=State),
            lambda state: state.version == _VERSION,
        )
        if loaded is None:
            return None
        state = loaded.value
        return Restored(
            picture_of(state),
            state.given,
            loaded.age_s,
            state.origins,
            state.losses,
            state.given_networks,
            state.attachments,
        )

    async def keep(self, state: State, age_s: float, *, is_last: bool = False) -> None:
        """Write the state if it is another than the one on disk, and it is time; else confirm it.

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
