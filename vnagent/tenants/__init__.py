# SPDX-License-Identifier: Apache-2.0
"""Tenants read from values: readings, rotations, client lists. No socket, clock or log."""
