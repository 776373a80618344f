# SPDX-License-Identifier: Apache-2.0
"""What vn-agent decides: pure functions over bytes and values, no socket, clock or log."""
