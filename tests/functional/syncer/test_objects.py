# SPDX-License-Identifier: Apache-2.0
"""Objects of tenants on their way down, through a real process."""

from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES
from tests.functional.syncer.clusters import synced_clusters

pytestmark = pytest.mark.functional


@pytest.mark.asyncio
async def test_a_config_map_reaches_the_super_cluster(tmp_path: Path) -> None:
    async with synced_clusters(tmp_path, "acme", "blue") as clusters:
        await clusters.start()
        for tenant in clusters.tenants.values():
            tenant.create_namespace("web")
            tenant.create_config_map("web", "settings", {"of": tenant.key})
        await clusters.until(lambda: len(clusters.super.objects(CONFIG_MAPS)) == 2)
        for key in clusters.tenants:
            found = clusters.super.get(CONFIG_MAPS, f"{key}-web", "settings")
            assert found is not None
            assert found["data"] == {"of": key}
        assert ("", "acme-web") in clusters.super.objects(NAMESPACES)
