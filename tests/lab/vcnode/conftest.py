# SPDX-License-Identifier: Apache-2.0
"""What tests of the demo share."""

from pathlib import Path

import pytest


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is short enough for sockets far down in it."""
    return tmp_path_factory.mktemp("d")
