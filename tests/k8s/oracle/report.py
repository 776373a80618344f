# SPDX-License-Identifier: Apache-2.0
"""The report of an oracle run, for the end of pytest's output."""

import pytest

LINES = pytest.StashKey[list[str]]()
"""In `config.stash`."""
