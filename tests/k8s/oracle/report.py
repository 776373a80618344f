# SPDX-License-Identifier: Apache-2.0
"""What a run of the oracle came to, for the end of pytest's output."""

import pytest

LINES = pytest.StashKey[list[str]]()
"""In `config.stash`."""
