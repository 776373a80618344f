# SPDX-License-Identifier: Apache-2.0
"""Reads our part of what a packet filter prints."""
