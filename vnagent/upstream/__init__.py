# SPDX-License-Identifier: Apache-2.0
"""The node's kubelet: connection pool, TLS session, page fetch."""
