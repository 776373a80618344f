# SPDX-License-Identifier: Apache-2.0
"""One TLS connection: cipher, socket, poller, tunnel."""
