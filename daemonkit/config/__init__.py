# SPDX-License-Identifier: Apache-2.0
"""Reads configuration files into frozen dataclasses."""
