# SPDX-License-Identifier: Apache-2.0
"""vc-operator: a VirtualCluster becomes a tenant with a control plane of its own, and is kept."""
