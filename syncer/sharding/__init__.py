# SPDX-License-Identifier: Apache-2.0
"""Who may write for a tenant: this process alone, or one of several replicas by their Leases."""
