# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference from the code: configuration, metrics, Events, exit codes and commands."""
