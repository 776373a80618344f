# SPDX-License-Identifier: Apache-2.0
"""What a provisioner makes: groups of objects, in order."""

from typing import NamedTuple

from tenant_operator.model.objects import Object


class Group(NamedTuple):
    """Objects that are applied together.

    `waits`: the next group is applied once the workloads of this one are rolled out.
    """

    name: str
    manifests: tuple[Object, ...]
    waits: bool
