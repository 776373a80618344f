# SPDX-License-Identifier: Apache-2.0
"""Which specs a run has: by area, by a name of this table, or by any regular expression. Pure."""

from __future__ import annotations

AREAS = (
    "node",
    "storage",
    "apps",
    "auth",
    "cli",
    "network",
    "api-machinery",
    "instrumentation",
    "scheduling",
    "architecture",
)
# A few of each kind, none slow: for CI.
_QUICK = r"\[sig-node\] Downward API should provide|\[sig-node\] ConfigMap "
NAMED = {"quick": _QUICK, **{area: rf"\[sig-{area}\]" for area in AREAS}}


def pattern(focus: str) -> str:
    """The regular expression for ginkgo: conformance tests that `focus` matches, or all."""
    chosen = NAMED.get(focus, focus)
    return rf"(?:{chosen}).*\[Conformance\]" if chosen else r"\[Conformance\]"
