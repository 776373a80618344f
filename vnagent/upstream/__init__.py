# SPDX-License-Identifier: Apache-2.0
"""The server upstream, the kubelet or the super API server: connection pool, TLS session, page fetch."""
