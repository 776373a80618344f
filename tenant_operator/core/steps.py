# SPDX-License-Identifier: Apache-2.0
"""What the edge is asked to do. A step that is done twice changes nothing."""

import msgspec

from tenant_operator.defaults.desired import DesiredList
from tenant_operator.defaults.inventory import Inventory
from tenant_operator.defaults.record import PassRecord
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.catalog import AuthoritySpec, LeafSpec
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import RotationStep


class Apply(msgspec.Struct, frozen=True):
    """Server-side apply of an object of ours, as field manager `vc-operator`."""

    manifest: Object


class ClaimNamespace(msgspec.Struct, frozen=True):
    """Create the root namespace. One of that name which is there and another's is left as it is."""

    manifest: Object


class Remove(msgspec.Struct, frozen=True):
    """Delete the object of this UID."""

    ref: Ref
    uid: str


class EndPods(msgspec.Struct, frozen=True):
    """Delete the pods of the namespace without a grace period that should have ended before a time (RFC 3339,
    UTC): their node may be dead."""

    namespace: str
    ended_before: str


class IssueAuthority(msgspec.Struct, frozen=True):
    """Make the key pair of an authority, in a Secret with these annotations.

    `version` is that of the Secret which is replaced, by a person's request; empty where there is none.
    """

    spec: AuthoritySpec
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    version: str = ""


class IssueLeaf(msgspec.Struct, frozen=True):
    """Issue a certificate into its Secret.

    `bundle_pem` is what a kubeconfig trusts, `version` that of the Secret which is replaced; empty where
    there is none.
    """

    spec: LeafSpec
    authority: Ref
    labels: dict[str, str]
    annotations: dict[str, str]
    bundle_pem: bytes
    version: str = ""


class GenerateKeys(msgspec.Struct, frozen=True):
    """Make a Secret with a random key: of service accounts, or for encryption at rest.

    `version` as of `IssueAuthority`: what the replaced key signed or encrypted is lost.
    """

    secret: Ref
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    version: str = ""


class Rotate(msgspec.Struct, frozen=True):
    """Take one step of a rotation, if the Secret is where the step begins.

    `servers` identifies the API servers that run: what others have written is not known to be rewritten.
    """

    rotation: RotateSecret
    labels: dict[str, str]
    servers: str = ""


class PatchCluster(msgspec.Struct, frozen=True):
    """A merge patch of the VirtualCluster, on condition of its version."""

    patch: Object


class SettleDefaults(msgspec.Struct, frozen=True):
    """Bring the tenant's objects to the list, as far as they are not the tenant's own, and write what came
    of it.

    `virtual_cluster` is its name as arguments of `kubectl vc`.
    """

    credential: Ref
    target: Ref
    desired: DesiredList
    inventory: Inventory
    record: PassRecord
    virtual_cluster: str
    labels: dict[str, str]


class CopyKubeconfig(msgspec.Struct, frozen=True):
    """Copy one value of a Secret as vc-syncer reads it, if it is still the one of this digest."""

    source: Ref
    key: str
    target: Ref
    digest: str
    labels: dict[str, str]


class AddEncryptionKeys(msgspec.Struct, frozen=True):
    """Have the keys of one EncryptionConfiguration read by another, which is made if there is none.

    `mark` names the restore that they are for, as an annotation. `namespace` is of the VirtualCluster,
    if the keys are another one's: one that was made after them is another owner's.
    """

    source: Ref
    target: Ref
    labels: dict[str, str]
    mark: str
    namespace: str = ""


class CopySecret(msgspec.Struct, frozen=True):
    """Write the data of one Secret into another, whatever that has now. A plan never has the data.

    `is_optional`: it is no failure if there is no source.
    """

    source: Ref
    target: Ref
    labels: dict[str, str]
    is_optional: bool = False


class MakeDatabase(msgspec.Struct, frozen=True):
    """Make a database and its role, by the administrator's credential in the Secret `server`; the Secret
    `target` has the role's."""

    server: Ref
    target: Ref
    name: str
    connections: int
    labels: dict[str, str]


class DropDatabase(msgspec.Struct, frozen=True):
    """Drop a database and its role, and then the Secret of this UID with the role's credential."""

    server: Ref
    credential: Ref
    uid: str
    name: str


OperatorStep = (
    Apply
    | ClaimNamespace
    | Remove
    | EndPods
    | IssueAuthority
    | IssueLeaf
    | GenerateKeys
    | Rotate
    | PatchCluster
    | SettleDefaults
    | CopyKubeconfig
    | CopySecret
    | AddEncryptionKeys
    | MakeDatabase
    | DropDatabase
)

_IN_TENANT = frozenset({RotationStep.REWRITE, RotationStep.CLEAN})


def is_in_tenant(step: OperatorStep) -> bool:
    """Whether it is carried out in the tenant's API server, which may be as slow as the tenant likes."""
    return isinstance(step, SettleDefaults) or (isinstance(step, Rotate) and step.rotation.step in _IN_TENANT)
