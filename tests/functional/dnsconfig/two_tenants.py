# SPDX-License-Identifier: Apache-2.0
"""A node with tenants a and b, each with the networks default and blue."""

from pathlib import Path

from tests.functional.dnsconfig.node import DnsNode
from tests.unit.dnsconfig.objects import tenant, virtual_cluster


def node(directory: Path, **settings: object) -> DnsNode:
    made = DnsNode(directory, settings)
    made.put(
        *tenant("a", default="10.96.0.10", blue="10.96.0.11"),
        *tenant("b", default="10.96.0.20", blue="10.96.0.21"),
        virtual_cluster("b", "b.example"),
    )
    return made
