# SPDX-License-Identifier: Apache-2.0
"""What the operator does next for one VirtualCluster: observed state in, ordered steps out."""
