# SPDX-License-Identifier: Apache-2.0
"""The operator's tool: what daemons say of themselves, tenants on the node, and a demo."""
