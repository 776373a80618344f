# SPDX-License-Identifier: Apache-2.0
"""Sleep, upgrade, backup, restore and deletion of a tenant's control plane: what is done next, and why."""
