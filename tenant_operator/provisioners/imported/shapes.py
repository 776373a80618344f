# SPDX-License-Identifier: Apache-2.0
"""By whom a kubeconfig Secret was written, known by name and keys (docs/spec/imported-control-planes.md)."""

import enum
from collections.abc import Collection

import msgspec


class SourceShape(enum.StrEnum):
    """Who writes Secrets of this shape."""

    KAMAJI = "Kamaji"
    VCLUSTER = "vcluster"
    K3K = "k3k"
    CLUSTER_API = "ClusterAPI"
    PLAIN = "plain"


class ShapeRule(msgspec.Struct, frozen=True):
    """Of `keys` the first that is there is read. A Secret of this shape has those `beside` it, too."""

    shape: SourceShape
    keys: tuple[str, ...]
    prefix: str = ""
    suffix: str = ""
    beside: frozenset[str] = frozenset()

    def fits(self, name: str, keys: Collection[str]) -> bool:
        """Whether a Secret of this name and these keys is of this shape."""
        is_named = name.startswith(self.prefix) and name.endswith(self.suffix)
        return is_named and self.beside <= set(keys) and any(key in keys for key in self.keys)

    def owner_of(self, name: str) -> str:
        """The name of the control plane, which is within the Secret's."""
        return name.removeprefix(self.prefix).removesuffix(self.suffix)


RULES = (
    # `super-admin.conf` is of the group system:masters, `admin.conf` of one that kubeadm binds. `admin.svc`
    # has the address of the Service, which people of the tenant may not change: it is for `spec.import.key`.
    ShapeRule(SourceShape.KAMAJI, ("admin.conf", "super-admin.conf"), suffix="-admin-kubeconfig"),
    ShapeRule(
        SourceShape.VCLUSTER,
        ("config",),
        prefix="vc-",
        beside=frozenset({"certificate-authority", "client-certificate", "client-key"}),
    ),
    ShapeRule(SourceShape.K3K, ("kubeconfig.yaml",), prefix="k3k-", suffix="-kubeconfig"),
    ShapeRule(SourceShape.CLUSTER_API, ("value",), suffix="-kubeconfig"),
    ShapeRule(
        SourceShape.PLAIN, ("kubeconfig", "config", "value", "admin.conf", "kubeconfig.yaml", "k3s.yaml")
    ),
)
"""The first that fits is the Secret's."""


def rule_of(name: str, keys: Collection[str]) -> ShapeRule | None:
    """The rule of a Secret; None if no key of it is known."""
    return next((rule for rule in RULES if rule.fits(name, keys)), None)
