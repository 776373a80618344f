# SPDX-License-Identifier: Apache-2.0
"""Writes a model as the document of a packet filter."""
