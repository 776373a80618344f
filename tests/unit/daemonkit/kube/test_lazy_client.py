# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.lazy_client import LazyClient

pytestmark = pytest.mark.asyncio


async def test_a_missing_kubeconfig_is_an_unreachable_server(tmp_path: Path) -> None:
    client = LazyClient(tmp_path / "kubeconfig", "test")
    with pytest.raises(UnreachableError, match="kubeconfig: "):
        await client.request("GET", "/api/v1/pods", {})
    with pytest.raises(UnreachableError, match="kubeconfig: "):
        async with client.stream("/api/v1/pods", {}, idle_timeout_s=1.0, timeout_s=1.0):
            pass
    await client.close()
