# SPDX-License-Identifier: Apache-2.0
"""An API server that has the webhook's registration, and nothing else."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from daemonkit.kube.client import MAX_RESPONSE_BYTES, UnreachableError
from dns_webhook import registration
from dns_webhook.registration import split

SHIPPED = Path(__file__).resolve().parents[3] / "packaging" / "webhook"


class Api:
    """One registration; applies a patch step by step. Unreachable on demand."""

    def __init__(self, **client_config: str) -> None:
        self.value = yaml.safe_load((SHIPPED / "registration.yaml").read_text())
        self.value["metadata"]["resourceVersion"] = "7"
        self.value["webhooks"][0]["clientConfig"] |= client_config
        self.patches = 0
        self.request_count = 0
        self.is_away = False

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes:
        self.request_count += 1
        if self.is_away:
            raise UnreachableError("no API server there")
        assert path == f"{registration.PATH}/dnsconfig.vcnode.io"
        if method == "PATCH":
            assert content_type == "application/json-patch+json"
            test, add = json.loads(body or b"")
            assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
            assert add["path"] == "/webhooks/0/clientConfig/caBundle"
            self.value["webhooks"][0]["clientConfig"]["caBundle"] = add["value"]
            self.patches += 1
        return json.dumps(self.value).encode()

    @property
    def bundle(self) -> list[bytes]:
        found: dict[str, Any] = self.value["webhooks"][0]["clientConfig"]
        return split(base64.b64decode(found.get("caBundle", "")))
