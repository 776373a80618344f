# SPDX-License-Identifier: Apache-2.0
"""The operator's tool: the status of daemons, tenants on the node, and a demo."""
