# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a real process: `vcnode tenants`, `vcnode explain object`, /metrics."""

import asyncio
import datetime as dt
import io
import re
from pathlib import Path

import pytest

from daemonkit.kube.event_recorder import EVENTS
from daemonkit.kube.resources import CONFIG_MAPS, PODS, SECRETS
from daemonkit.status.server import fetch
from tests.functional.syncer.clusters import SyncedClusters, synced_clusters
from vcnode.__main__ import EXPLAINERS, parser
from vcnode.terminal import Terminal

pytestmark = pytest.mark.functional


async def vcnode(clusters: SyncedClusters, *words: str) -> tuple[int, list[str]]:
    """Run a verb against the syncer's socket."""
    command = list(words) if words[0] != "explain" else list(words[1:])
    top = parser() if words[0] != "explain" else parser((EXPLAINERS[words[1]],))
    arguments = top.parse_args([*command, "--socket", str(clusters.socket)])
    out = io.StringIO()
    terminal = Terminal(out, io.StringIO(), dt.datetime.now(dt.UTC))
    code: int = await asyncio.to_thread(arguments.run, arguments, terminal)
    return code, out.getvalue().splitlines()


@pytest.mark.asyncio
async def test_operator_sees_tenants_and_their_objects(tmp_path: Path) -> None:
    async with synced_clusters(tmp_path, "acme") as clusters:
        await clusters.start()
        tenant = clusters.tenants["acme"]
        tenant.create_namespace("web")
        tenant.create_config_map("web", "settings", {"of": "acme"})
        tenant.storage.create(
            SECRETS,
            {"metadata": {"namespace": "web", "name": "key"}, "type": "Opaque", "data": {"word": "c2VjcmV0"}},
        )
        spec = {"hostNetwork": True, "containers": [{"name": "main", "image": "web"}]}
        tenant.storage.create(PODS, {"metadata": {"namespace": "web", "name": "host"}, "spec": spec})
        await clusters.until(
            lambda: (
                clusters.super.get(CONFIG_MAPS, "acme-web", "settings")
                and clusters.super.get(SECRETS, "acme-web", "key")
            )
        )
        code, lines = await vcnode(clusters, "tenants", "--tenant", "acme")
        assert code == 0
        assert lines[0].split()[:2] == ["TENANT", "PHASE"]
        assert lines[1].split()[:2] == ["acme", "Synced"]
        await clusters.until(
            lambda: any(each["reason"] == "SyncRefused" for each in tenant.objects(EVENTS).values())
        )
        code, lines = await vcnode(clusters, "explain", "object", "Pod", "web/host", "--tenant", "acme")
        assert code == 1
        assert "super cluster  none in acme-web" in lines
        assert any(line.startswith("refused        spec.hostNetwork: ") for line in lines), lines
        code, lines = await vcnode(clusters, "explain", "object", "Secret", "web/key", "--tenant", "acme")
        assert "c2VjcmV0" not in "".join(lines)
        assert lines[1] == "super cluster  Secret acme-web/key"
        page = (await asyncio.to_thread(fetch, clusters.socket, "/metrics", 5.0))[1].decode()
        assert re.search(r'^vcnode_syncer_tenants\{state="Synced"\} 1(\.0)?$', page, re.MULTILINE)
        assert re.search(r'^vcnode_syncer_source_age_seconds\{source="super"\} ', page, re.MULTILINE)
        assert re.search(r"^vcnode_syncer_valid_leases 1\.0$", page, re.MULTILINE)
