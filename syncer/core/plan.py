# SPDX-License-Identifier: Apache-2.0
"""What is to be done about one object: a Plan of two halves, each of Actions in order. Pure.

The kinds make Plans of what both sides have. The engine carries them out, and asks before each write to the
super cluster whether the namespace is that tenant's. To carry out a Plan twice changes nothing: each write
has a UID, or is a creation.
"""

import enum

import msgspec

from syncer.core.objects import Object, SyncedKind


class Side(enum.StrEnum):
    TENANT = "tenant"
    SUPER = "super"


SIDES = tuple(Side)
"""To iterate over the class itself takes ten times as long, which counts where it is done for each event."""


class Create(msgspec.Struct, frozen=True):
    """Create `body`, whose metadata has name and, if it is namespaced, namespace (of that side).

    An existing object is no success: the object is planned again, with the one that was found.
    """

    side: Side
    kind: SyncedKind
    body: Object


class Patch(msgspec.Struct, frozen=True):
    """Apply a JSON merge patch to the object of this UID, or to its `subresource`.

    A strategic merge patch where `is_strategic`: for lists that others write too, by their merge key.
    With a `version` the patch is refused if the object has changed since. `is_separate`: it goes out also
    where one before it was refused.
    """

    side: Side
    kind: SyncedKind
    namespace: str
    name: str
    uid: str
    body: Object
    subresource: str = ""
    is_strategic: bool = False
    version: str = ""
    is_separate: bool = False


class Delete(msgspec.Struct, frozen=True):
    """Delete the object of this UID, in the background. `grace_s` None is the server's default.

    `is_refused`: it may not be there whatever the other side has. So it goes also where deletions that follow
    from an absence are held.
    """

    side: Side
    kind: SyncedKind
    namespace: str
    name: str
    uid: str
    grace_s: int | None = None
    is_refused: bool = False


class Bind(msgspec.Struct, frozen=True):
    """Bind the tenant's pod of this UID to its vNode of this name, which is created first if missing."""

    namespace: str
    name: str
    uid: str
    node: str


class IssueTokens(msgspec.Struct, frozen=True):
    """Have the tokens that a super pod mounts issued by the tenant, and put them into Secret `secret_name`
    of the pod's super namespace.

    The tenant's pod has its node before: only then does the tenant's API server put it into the tokens.
    No action that follows needs them: the kubelet waits for the Secret.
    """

    namespace: str
    name: str
    uid: str
    service_account: str
    secret_name: str
    tokens: tuple["TokenRequest", ...]


class TokenRequest(msgspec.Struct, frozen=True):
    """One `serviceAccountToken` source of a projected volume; `key` is its key in the Secret.

    An empty audience is the tenant API server's own; `expiration_s` as the volume says.
    """

    key: str
    audience: str
    expiration_s: int


Action = Create | Patch | Delete | Bind | IssueTokens


class Refusal(msgspec.Struct, frozen=True):
    """A field of the tenant's object that may not go down. A `path` is as `spec.containers[0].image`."""

    path: str
    message: str


class Change(msgspec.Struct, frozen=True):
    """A field of the tenant's object that the super object does not have, or has otherwise.

    The `message` continues the `path`, as in "stays in this cluster".
    """

    path: str
    message: str


class Wait(msgspec.Struct, frozen=True):
    """What the object waits for, for the tenant's eyes: (reason, message) as in a Condition."""

    reason: str
    message: str


class Conflict(msgspec.Struct, frozen=True):
    """An object of the super cluster stands in the way. It is left as it is.

    The `message` is for the operator: tenants see only that the name is taken.
    """

    message: str


class Half(msgspec.Struct, frozen=True):
    """What is to be done in one direction, or why it is not. Empty: nothing to do.

    With `refusals`, a `wait` or a `conflict` this direction is not done: nothing goes by halves of an object.
    Actions besides are still carried out, such as the deletion of what was refused later.
    `changes`: what of an object that goes down is not as its author wrote it.
    `is_partial`: after the actions there is more to do, with what an API server chose in them.
    """

    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    wait: Wait | None = None
    conflict: Conflict | None = None
    changes: tuple[Change, ...] = ()
    is_partial: bool = False

    @property
    def is_stopped(self) -> bool:
        """Whether something stands against this direction, which the tenant hears of."""
        return self.wait is not None or self.conflict is not None or bool(self.refusals)


class Direction(enum.StrEnum):
    """DOWN makes the super object what the tenant asked for, UP shows the tenant what came of it."""

    DOWN = "down"
    UP = "up"


DIRECTIONS = tuple(Direction)
"""As `SIDES`."""


class Plan(msgspec.Struct, frozen=True):
    """Nothing to do: both sides agree, or cannot be made to.

    The two halves go their own ways: what stops or fails one of them does not stop the other, and each
    is tried again by itself. What goes down is begun first.
    """

    down: Half = Half()
    up: Half = Half()

    def half(self, direction: Direction) -> Half:
        return self.down if direction is Direction.DOWN else self.up

    @property
    def actions(self) -> tuple[Action, ...]:
        """Of both halves, in the order in which they are carried out."""
        return (*self.down.actions, *self.up.actions)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return (*self.down.refusals, *self.up.refusals)

    @property
    def wait(self) -> Wait | None:
        return self.down.wait or self.up.wait

    @property
    def conflict(self) -> Conflict | None:
        return self.down.conflict or self.up.conflict

    @property
    def changes(self) -> tuple[Change, ...]:
        return (*self.down.changes, *self.up.changes)

    @property
    def is_partial(self) -> bool:
        return self.down.is_partial or self.up.is_partial

    @property
    def is_stopped(self) -> bool:
        """Whether something stands against either direction."""
        return self.down.is_stopped or self.up.is_stopped


NOTHING = Plan()
