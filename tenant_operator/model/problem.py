# SPDX-License-Identifier: Apache-2.0
"""Why a spec cannot be used."""

import msgspec


class SpecProblem(msgspec.Struct, frozen=True):
    """`reason` is a CamelCase word for machines; the rest is for people, and names no other tenant.

    `of` is the object with the field, as `ClusterVersion v1.34`; empty for the VirtualCluster itself.
    """

    field: str
    reason: str
    message: str
    remedy: str
    of: str = ""

    @property
    def text(self) -> str:
        """The message of a condition."""
        where = f"{self.of}: " if self.of else ""
        return f"{where}{self.field}: {self.message}; {self.remedy}"
