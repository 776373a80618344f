# SPDX-License-Identifier: Apache-2.0
"""Runs a ring as CI does: what may be skipped, one second chance, figures. `__main__` is the command."""
