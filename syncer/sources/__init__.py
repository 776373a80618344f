# SPDX-License-Identifier: Apache-2.0
"""Which tenants there are, and how their control planes are reached."""
