# SPDX-License-Identifier: Apache-2.0
"""How our authorities get into the registration."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from dnsconfig.webhook import registration
from dnsconfig.webhook.registration import RegistrationError, publish, split

pytestmark = pytest.mark.asyncio


def pem(name: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n".encode()


class Api:
    """One registration; the steps of a patch are taken one by one."""

    def __init__(self, **client_config: str) -> None:
        self.value = registration.registration({"url": "https://x/mutate", **client_config})
        self.value["metadata"]["resourceVersion"] = "7"
        self.patches = 0

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
    ) -> bytes:
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


async def test_ours_come_in_once_and_others_stay() -> None:
    other = base64.b64encode(pem("other")).decode()
    api = Api(caBundle=other)
    assert await publish(api, [pem("a")], [])
    assert not await publish(api, [pem("a")], [])
    assert api.bundle == [pem("other"), pem("a")]
    assert await publish(api, [pem("b")], [pem("a")])
    assert (api.bundle, api.patches) == ([pem("other"), pem("b")], 2)


async def test_an_empty_bundle() -> None:
    api = Api()
    assert await publish(api, [pem("a"), pem("b")], [])
    assert api.bundle == [pem("a"), pem("b")]


async def test_what_is_not_as_it_has_to_be() -> None:
    api = Api(caBundle=base64.b64encode(b"".join(pem(str(n)) for n in range(16))).decode())
    with pytest.raises(RegistrationError, match="17 authorities"):
        await publish(api, [pem("a")], [])
    api.value["webhooks"][0]["name"] = "another"
    with pytest.raises(RegistrationError, match="has no webhook"):
        await publish(api, [pem("a")], [])
