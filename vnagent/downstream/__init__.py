# SPDX-License-Identifier: Apache-2.0
"""Tenants' connections: listener, handshakes, admission, requests."""
