# SPDX-License-Identifier: Apache-2.0
"""vNodes: the Nodes that a tenant sees for nodes of the super cluster."""
