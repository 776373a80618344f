# SPDX-License-Identifier: Apache-2.0
"""What a provisioner makes: groups of objects, in order."""

from typing import NamedTuple, Protocol

from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object


class Group(NamedTuple):
    """Objects that are applied together.

    `waits`: the next group is applied once the workloads of this one are rolled out.
    """

    name: str
    manifests: tuple[Object, ...]
    waits: bool


class Provisioner(Protocol):
    def groups(self, control_plane: ControlPlane, inputs: ManifestInputs) -> tuple[Group, ...]:
        """All objects of a control plane, in the order in which they are applied."""
