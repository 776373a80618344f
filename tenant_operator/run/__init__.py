# SPDX-License-Identifier: Apache-2.0
"""One process: its parts built, started and ended, and what it reports of itself."""
