# SPDX-License-Identifier: Apache-2.0
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: pytest's own leaves too little of a socket's 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="vck"))
    yield made
    shutil.rmtree(made)
