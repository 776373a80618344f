# SPDX-License-Identifier: Apache-2.0
"""The manifests that come with the operator, as text."""

from importlib import resources


def builtin_manifests() -> dict[str, str]:
    """The files of tenant_operator/defaults/manifests, by their names."""
    folder = resources.files("tenant_operator.defaults") / "manifests"
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
