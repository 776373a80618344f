# SPDX-License-Identifier: Apache-2.0
"""Every test carries the marker of its ring, so that no file can forget to."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("vcnode", deadline=None)
settings.load_profile("vcnode")

_RINGS = ("functional", "lab", "lab_vm", "k8s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        ring = item.path.relative_to(here).parts[0]
        if ring in _RINGS:
            item.add_marker(ring)
