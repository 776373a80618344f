# SPDX-License-Identifier: Apache-2.0
"""Reads, watches and writes files."""
