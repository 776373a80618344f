# SPDX-License-Identifier: Apache-2.0
"""A page of the kubelet's as one tenant sees it, as if it were the first that vn-agent read."""

from typing import TypeVar

from tenancy.ownership import OwnerIndex
from vnagent.pages.node_cpu import NodeCpu
from vnagent.pages.page import PageKind, View

T = TypeVar("T")


def tenants_page(kind: PageKind[T], page: bytes, index: OwnerIndex, tenant: str) -> bytes:
    """What `tenant` sees of the kubelet's `page`. Raises PageError."""
    parsed, node_cpu = kind.parse(page), NodeCpu()
    if kind.read_cpu is not None:
        node_cpu.take(kind.read_cpu(parsed), index)
    return kind.render(parsed, View(index, tenant, node_cpu.total(tenant)))
