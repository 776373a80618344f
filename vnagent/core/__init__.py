# SPDX-License-Identifier: Apache-2.0
"""The decisions of vn-agent over bytes and values: no socket, clock or log."""
