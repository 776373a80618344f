# SPDX-License-Identifier: Apache-2.0
"""The packages of this repository, as import-linter checks them: pyproject.toml is the one list."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PACKAGES: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
)
