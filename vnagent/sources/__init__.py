# SPDX-License-Identifier: Apache-2.0
"""Tenants and pods: read, published, how current."""
