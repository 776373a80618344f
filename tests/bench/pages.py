# SPDX-License-Identifier: Apache-2.0
"""What tenants' scrapers cost a node: `python -m tests.bench.pages`.

A node of 250 pods and 100 tenants. Prints the CPU time of one tenant's page, once the shared read is parsed,
and vn-agent's share of a core while each tenant reads `/metrics/resource` every 15 s, as metrics-server does.
"""

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from devkit.kubelet.pods import FakePod, page_for
from tenancy import keys
from tenancy.ownership import ContainerPolicy, OwnerIndex
from tests.bench import usage
from tests.cases.client import CaseClient
from tests.functional.vnagent.node import NAME, AgentNode, head, reply_of
from vnagent.pages.metrics import CADVISOR, RESOURCE
from vnagent.pages.node_cpu import NodeCpu
from vnagent.pages.page import PageKind, View
from vnagent.pages.podlist import owned_pods

PODS, TENANTS, LARGEST = 250, 100, 30
INTERVAL_S = 15.0
PAGE = "/metrics/resource"
_REPEATS = 20


def pods() -> list[FakePod]:
    """The first tenant has LARGEST pods, the others share the rest."""
    found = []
    for number in range(PODS):
        tenant = f"tenant-{0 if number < LARGEST else 1 + number % (TENANTS - 1)}"
        annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: "web", keys.UID: f"t-{number}"}
        name = f"shop-{number}-7d9c4b5f6-abcde"
        found.append(
            FakePod(f"{tenant}-web", name, f"s-{number}", annotations=annotations, injected=("mesh",))
        )
    return found


def cpu_ms(call: Callable[[], object]) -> float:
    """The CPU time of one call."""
    call()
    begun_s = time.process_time()
    for _ in range(_REPEATS):
        call()
    return (time.process_time() - begun_s) * 1000 / _REPEATS


def of_one_page(name: str, page: PageKind[Any], raw: bytes, index: OwnerIndex) -> Iterator[str]:
    """A page's costs, one a line."""
    parsed, node_cpu = page.parse(raw), NodeCpu()
    yield f"{len(raw) / 1e6:.2f} MB, parsed once for all tenants in {cpu_ms(lambda: page.parse(raw)):.1f} ms"
    if page.read_cpu is not None:
        reading = page.read_cpu(parsed)
        node_cpu.take(reading, index)
        yield f"processor times of a read taken in {cpu_ms(lambda: node_cpu.take(reading, index)):.2f} ms"
    view = View(index, "tenant-0", node_cpu.total("tenant-0"))
    body = page.render(parsed, view)
    render_ms, gzip_ms = cpu_ms(lambda: page.render(parsed, view)), cpu_ms(lambda: gzip.compress(body, 1))
    yield f"{LARGEST} of {PODS} pods in {render_ms:.2f} ms, {len(body)} bytes"
    yield f"the same with gzip: {gzip_ms:.2f} ms more, {len(gzip.compress(body, 1))} bytes"


def share_of_a_core(node: AgentNode, seconds: float) -> tuple[float, int, int]:
    """vn-agent's CPU seconds for each second while all tenants poll; requests; reads of the kubelet."""
    scrapers: dict[str, CaseClient] = {}
    tenants = list(node.tenants)
    with ExitStack() as stack:
        before_s, reads = usage.cpu_s([node.daemon.pid]), len(node.kubelet.requests(PAGE))
        begun_s, number = time.monotonic(), 0
        while (due_s := begun_s + number * INTERVAL_S / TENANTS) < begun_s + seconds:
            time.sleep(max(0.0, due_s - time.monotonic()))  # pace: the scrapers' interval
            key = tenants[number % TENANTS]
            if key not in scrapers:
                client = CaseClient(("127.0.0.1", node.daemon.port), node.context(key), sni=NAME)
                scrapers[key] = stack.enter_context(client)
                client.handshake()
            _ask(scrapers[key])
            number += 1
        elapsed_s = time.monotonic() - begun_s
        used_s = usage.cpu_s([node.daemon.pid]) - before_s
        return used_s / elapsed_s, number, len(node.kubelet.requests(PAGE)) - reads


def _ask(scraper: CaseClient) -> None:
    scraper.received.clear()
    scraper.send(head(f"GET {PAGE}", "Accept-Encoding: gzip"))
    reply = reply_of(scraper)
    if reply is None or reply.status != 200:
        raise RuntimeError(f"a page was answered {reply and reply.status}")


def main() -> int:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of polling")
    arguments = parser.parse_args()
    known = pods()
    listing = page_for("/pods", known, NAME)
    if listing is None:
        raise RuntimeError("the fake kubelet has no /pods")
    index = OwnerIndex(owned_pods(listing[1], ContainerPolicy(frozenset({"mesh"})))[0])
    for name, page in ((PAGE, RESOURCE), ("/metrics/cadvisor", CADVISOR)):
        made = page_for(name, known, NAME)
        if made is None:
            raise RuntimeError(f"the fake kubelet has no {name}")
        for line in of_one_page(name, page, made[1], index):
            sys.stdout.write(f"{name}: {line}\n")
    keys_of_all = [f"tenant-{number}" for number in range(TENANTS)]
    settings = {"injectedContainers": ["mesh"], "pods": {"source": "kubelet", "intervalSeconds": 5}}
    with (
        tempfile.TemporaryDirectory(prefix="vcnode-bench-") as scratch,
        AgentNode(Path(scratch) / "n", keys_of_all, known, settings) as node,
    ):
        share, requests, reads = share_of_a_core(node, arguments.seconds)
    sys.stdout.write(
        f"{TENANTS} tenants, each every {INTERVAL_S:.0f} s, {PODS} pods: {share:.2%} of a core"
        f" ({requests} requests, {reads} reads of the kubelet; its /pods every 5 s is in it)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
