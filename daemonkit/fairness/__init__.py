# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is, by what each has used: the time of one event loop is shared by its tenants."""
