# SPDX-License-Identifier: Apache-2.0
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: the path of a unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="vcb") as made:
        yield Path(made)
