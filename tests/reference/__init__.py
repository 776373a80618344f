# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference from the code: configuration, metrics, Events, exit codes and commands. And
definitions that are another one with a difference.
"""
