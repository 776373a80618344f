# SPDX-License-Identifier: Apache-2.0
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: pytest's own leaves too little of a socket's 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vcb") as made:
        yield Path(made)
