# SPDX-License-Identifier: Apache-2.0
"""How a daemon's process starts, runs and ends."""
