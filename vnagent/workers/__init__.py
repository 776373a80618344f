# SPDX-License-Identifier: Apache-2.0
"""Several processes serve the tenants of one node: workers, which the main process starts and feeds."""
