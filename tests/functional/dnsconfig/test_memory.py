# SPDX-License-Identifier: Apache-2.0
"""The real daemon with the largest objects that tenants may create: its README's formula holds."""

import asyncio
from pathlib import Path

import pytest

from daemonkit.kube.resources import SERVICES
from tests.functional.daemon_node import running
from tests.functional.dnsconfig.node import DnsNode
from tests.functional.memory import peak_mb
from tests.unit.dnsconfig.objects import service, tenant

pytestmark = pytest.mark.asyncio

PODS, TOO_LARGE = 100, 12
# The API server accepts 90 000 options, 1.4 MB.
OPTIONS = [{"name": f"o{number}"} for number in range(90_000)]
# The most that dnsconfig accepts.
MOST = [{"name": f"option-{number}", "value": "v" * 200} for number in range(256)]
OPTIONS_KB = 61


def allowed_mb(*, pods: int, lists: int) -> float:
    """dnsconfig/README.md, "How much memory": in MB."""
    return 50 + 24 * lists + 8 * pods * OPTIONS_KB / 1_000


async def test_memory_stays_within_the_documented_formula(tmp_path: Path) -> None:
    here = DnsNode(tmp_path)
    here.put(*tenant("a", default="10.96.0.10"), *tenant("b", default="10.96.0.20"))
    for number in range(TOO_LARGE):
        here.put_pod("a", f"large-{number}", dnsConfig={"options": OPTIONS})
    mine = [here.put_pod("a", f"most-{number}", dnsConfig={"options": MOST}) for number in range(PODS)]
    uid = here.put_pod("b", "web")
    async with running(here):
        await here.until(lambda: here.servers(uid) == ["10.96.0.20"], 60.0)
        await here.until(lambda: all(here.text(each) for each in mine), 60.0)
        for number in range(10):
            here.put_pod("a", "large-0", dnsConfig={"options": OPTIONS[number:]})
            here.put_pod("a", "most-0", dnsConfig={"options": MOST[number:]})
        here.apiserver.storage.put(SERVICES, service("b", "default", "10.96.0.21"))
        await here.until(lambda: here.servers(uid) == ["10.96.0.21"], 60.0)
        await asyncio.sleep(1)
        lines = (await here.get("/metrics"))[1].splitlines()
        assert f'vcnode_process_oversized_objects{{kind="pods"}} {float(TOO_LARGE)}' in lines
        peak, most = peak_mb(here.process), allowed_mb(pods=PODS, lists=1)
        print(f"peak {peak:.0f} MB, allowed {most:.0f} MB")  # noqa: T201 - the figure of the README
        assert peak < most
        assert await here.stop() == 0
