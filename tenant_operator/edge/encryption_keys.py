# SPDX-License-Identifier: Apache-2.0
"""Which encryption configuration an API server has loaded, by the digest that it publishes with its metrics.

Kubernetes 1.34 or newer: `apiserver_encryption_config_controller_last_config_info`.
"""

import hashlib

from daemonkit.kube.client import ApiClient

# Measured: below 3 MiB, of a tenant with many kinds and clients more.
_MAX_METRICS_BYTES = 32 << 20
_LOADED = b"apiserver_encryption_config_controller_last_config_info{"


async def has_loaded(client: ApiClient, config: bytes) -> bool:
    """Whether it encrypts and decrypts by this configuration. Raises ApiError and UnreachableError."""
    body = await client.request("GET", "/metrics", {}, limit_bytes=_MAX_METRICS_BYTES)
    loaded = f'hash="sha256:{hashlib.sha256(config).hexdigest()}"'.encode()
    return any(
        line.startswith(_LOADED) and line.endswith(b"} 1") and loaded in line for line in body.split(b"\n")
    )
