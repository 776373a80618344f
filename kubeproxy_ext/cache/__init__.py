# SPDX-License-Identifier: Apache-2.0
"""Pure: the objects in use, what to watch for them, and tenants' sync states."""
