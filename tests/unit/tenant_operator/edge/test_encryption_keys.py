# SPDX-License-Identifier: Apache-2.0
"""Which encryption configuration an API server's metrics name."""

from __future__ import annotations

import hashlib

import pytest

from tenant_operator.edge.encryption_keys import has_loaded
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

_NAME = "apiserver_encryption_config_controller_last_config_info"


def metrics(config: bytes, value: int = 1) -> bytes:
    """As kube-apiserver 1.34.4 writes it."""
    digest = hashlib.sha256(config).hexdigest()
    lines = (
        f"# TYPE {_NAME} gauge",
        f'{_NAME}{{apiserver_id_hash="sha256:{"0" * 64}",hash="sha256:{digest}"}} {value}',
        "apiserver_request_total 5",
    )
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [(metrics(b"now"), True), (metrics(b"before"), False), (metrics(b"now", 0), False), (b"", False)],
)
async def test_the_loaded_configuration_is_the_published_one(body: bytes, expected: bool) -> None:
    client = FakeAnswers({"GET /metrics": body})
    assert await has_loaded(client, b"now") is expected  # type: ignore[arg-type]
