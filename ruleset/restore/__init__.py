# SPDX-License-Identifier: Apache-2.0
"""Writes the texts that change a guest's packet filter."""
