# SPDX-License-Identifier: Apache-2.0
"""vc-syncer between real control planes: two tenants', and a super cluster with nodes."""
