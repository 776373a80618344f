# SPDX-License-Identifier: Apache-2.0
"""Definitions that are another one with one difference: made of its text, so that neither lacks a field."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.packages import ROOT

_CRDS = Path("packaging/crds")
_BEGIN = "apiVersion:"


@dataclass(frozen=True, slots=True)
class MadeDefinition:
    """A definition: `old` is what the one that people edit has in the place of `new`."""

    path: Path
    source: Path
    head: str
    old: str
    new: str


DEFINITIONS = (
    MadeDefinition(
        _CRDS / "virtualclusters-vc-manager.yaml",
        _CRDS / "virtualclusters.yaml",
        """\
# VirtualClusters where upstream's vc-manager runs. vc-manager writes the status by ordinary updates, so the
# status has no endpoint of its own. An account that may write a VirtualCluster can then choose its cluster
# key: give these rights to vc-manager and administrators alone. All else is as in virtualclusters.yaml, which
# has the reasons. vc-operator needs the other file.
""",
        "    subresources:\n      status: {}\n",
        "",
    ),
    *(
        MadeDefinition(
            path,
            _CRDS / "networks.yaml",
            """\
# Networks in a tenant's own control plane. packaging/crds/networks.yaml is the super cluster's, and differs
# in the scope alone.
""",
            "  scope: Namespaced\n",
            "  scope: Cluster\n",
        )
        for path in (
            _CRDS / "networks-tenant.yaml",
            # vc-operator gives it to tenants. Images have no packaging/crds.
            Path("tenant_operator/defaults/manifests/networks-crd.yaml"),
        )
    ),
)


def text(definition: MadeDefinition, source: str) -> str:
    """The file, made of the text of the one that people edit. Raises `ValueError` where that has no
    such place, or several."""
    if source.count(definition.old) != 1:
        raise ValueError(f"{definition.source}: not one place that reads {definition.old!r}")
    body = source[source.index(f"\n{_BEGIN}") + 1 :].replace(definition.old, definition.new)
    made = f"# Made of {definition.source} by `make reference`; do not edit.\n"
    return f"# SPDX-License-Identifier: Apache-2.0\n#\n{definition.head}#\n{made}{body}"


def made() -> Mapping[Path, str]:
    """What each of them holds, by its path in the repository. Raises as `text`."""
    return {each.path: text(each, (ROOT / each.source).read_text(encoding="utf-8")) for each in DEFINITIONS}


def stale() -> list[str]:
    """Those that differ."""
    return [
        str(path) for path, content in made().items() if (ROOT / path).read_text(encoding="utf-8") != content
    ]


def write() -> None:
    """Write all."""
    for path, content in made().items():
        (ROOT / path).write_text(content, encoding="utf-8")
