# SPDX-License-Identifier: Apache-2.0
"""The placeholders of cases, replaced by what a world has."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from syncer.core.plan import Side
from tests.cases.sync.world import World

ANY = "${ANY}"
"""In the place of what an API server chose."""

TIME = "2025-06-01T00:00:00Z"
_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")

# What nobody computes: the same value wherever it stands.
_FIXED: Mapping[str, Any] = {
    "TENANT_API_ADDRESS": "192.0.2.1",
    "TENANT_API_PORT": 6443,
    "NODE": "node-1",
    "NODE_IP": "192.0.2.2",
    "NEW_NODE_IP": "192.0.2.3",
    "POD_IP": "10.1.0.1",
    "TIME": TIME,
    "RV": "7",
    "TOKEN": "dG9rZW4=",
    "TENANT_CA": "Y2E=",
    "CA": "Y2E=",
    "NODE_PORT": ANY,
    "TENANT_NODE_PORT": ANY,
    "GENERATED": ANY,
}


class UnknownPlaceholderError(Exception):
    """A placeholder that this runner does not know, or whose object is not there."""


class Placeholders:
    """Replaces placeholders for one case, whose own objects are named here."""

    def __init__(self, world: World, kind: str, namespace: str, name: str) -> None:
        self._world = world
        self._kind, self._namespace, self._name = kind, namespace, name
        self.tenant_uids: list[str] = []
        self.super_uid = ""

    def replaced(self, value: Any) -> Any:
        """A copy of a value with all placeholders replaced."""
        if isinstance(value, dict):
            return {self.replaced(name): self.replaced(field) for name, field in value.items()}
        if isinstance(value, list):
            return [self.replaced(each) for each in value]
        if not isinstance(value, str):
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        if whole:
            return self._value(whole[1])
        return _PLACEHOLDER.sub(lambda match: str(self._value(match[1])), value)

    def _value(self, name: str) -> Any:
        tenant, world = self._world.tenant, self._world
        known: dict[str, Any] = {
            "KEY": tenant.key,
            "VC_NAME": tenant.vc_name,
            "VC_NAMESPACE": tenant.vc_namespace,
            "VC_UID": tenant.uid,
            "TENANT_NS": self._namespace,
            "TENANT_NAME": self._name,
            "LONG_NS": _shortened(
                f"{tenant.key}-a-very-long-tenant-namespace-name-that-has-sixty-three-letters1"
            ),
            "EDGE_NS": _shortened(f"{tenant.key}-n-{'b' * 41}"),
            "SUPER_UID": self.super_uid,
            "CLUSTER_IP": world.address(Side.SUPER, self.super_namespace(self._namespace), self._name),
            "TENANT_CLUSTER_IP": world.address(Side.TENANT, self._namespace, self._name),
            "KUBERNETES_IP": world.address(Side.SUPER, self.super_namespace("default"), "kubernetes"),
            "DNS_IP": world.address(Side.SUPER, self.super_namespace("kube-system"), "kube-dns"),
        }
        if name in _FIXED:
            return _FIXED[name]
        if name in known:
            return known[name]
        if name == "TENANT_UID":
            return self.tenant_uids[0] if self.tenant_uids else ANY
        if name == "TENANT_UID_2":
            return self.tenant_uids[1]
        head, _, rest = name.partition(":")
        namespace, _, other = rest.rpartition("/")
        if head == "TENANT_IP":
            return world.address(Side.TENANT, namespace, other)
        if head == "IP":
            return world.address(Side.SUPER, self.super_namespace(namespace), other)
        if head in ("UID", "SUPER_UID"):
            return self._uid(Side.TENANT if head == "UID" else Side.SUPER, namespace, other)
        raise UnknownPlaceholderError(name)

    def super_namespace(self, namespace: str) -> str:
        return str(self._world.tenant.super_namespace(namespace))

    def _uid(self, side: Side, kind: str, name: str) -> str:
        for (found_kind, _, found_name), value in self._world.sides[side].items():
            if (found_kind, found_name) == (kind, name):
                return str(value["metadata"]["uid"])
        raise UnknownPlaceholderError(f"uid of {kind}/{name}")


def _shortened(name: str) -> str:
    """As the header of the cases says; on purpose not by `tenancy.names`."""
    if len(name) <= 63:
        return name
    return f"{name[:57]}-{hashlib.sha256(name.encode()).hexdigest()[:5]}"
