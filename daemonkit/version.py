# SPDX-License-Identifier: Apache-2.0
"""The version of all programs: their `--version`, the packages and `pyproject.toml` have it from here."""

# Setuptools and packaging/ read this line without importing it.
VERSION = "0.1.0"
