# SPDX-License-Identifier: Apache-2.0
"""What the edge is asked to do. A step that is done twice changes nothing."""

import msgspec

from tenant_operator.model.objects import Object, Ref


class Apply(msgspec.Struct, frozen=True):
    """Server-side apply of an object of ours, as field manager `vc-operator`."""

    manifest: Object


class Claim(msgspec.Struct, frozen=True):
    """Create an object that must not be there: one of that name which is there is another's."""

    manifest: Object


class Remove(msgspec.Struct, frozen=True):
    """Delete the object of this UID."""

    ref: Ref
    uid: str


class WriteAuthority(msgspec.Struct, frozen=True):
    """Make the key pair of an authority, into a Secret that does not exist."""

    secret: Ref
    common_name: str
    days: int
    labels: dict[str, str]


class PatchObject(msgspec.Struct, frozen=True):
    """A merge patch of an object, on condition that it is the one of this UID."""

    ref: Ref
    uid: str
    patch: Object
    subresource: str = ""


Step = Apply | Claim | Remove | WriteAuthority | PatchObject
