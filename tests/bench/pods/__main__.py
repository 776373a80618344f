# SPDX-License-Identifier: Apache-2.0
"""Measures our cost for a pod's start: `python -m tests.bench.pods`.

README.md of tests/bench explains the method and the output.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import setting, usage
from tests.bench.bounded import document, table
from tests.bench.pods import rounds
from tests.bench.pods.report import PEERS, tables
from tests.bench.pods.rounds import FULL, POLICY_VARIANTS, QUICK, Results, StartVariant
from tests.bench.pods.starting import Starter
from tests.bench.pods.vcnode_daemons import VcnodeDaemons
from tests.bench.processes import RunError
from tests.bench.services import objects
from tests.k8s import build
from tests.k8s.ring import gate_networks, machine, services
from tests.k8s.ring.cluster import Ring, start_ring
from tests.k8s.ring.processes import RingError, run
from tests.k8s.ring.serving import AGENT, KATA
from tests.k8s.ring.tenants import RingTenant

# The Services of each pod's guest, as in the bench of Services.
_SERVICES, _ENDPOINTS = 100, 2
_GUESTS = {
    "netns": "runc, guests by their network namespaces",
    "agent": "runc, guests by our agent as their native sidecar",
}


def main() -> int:
    arguments = _arguments()
    begun_s = time.monotonic()
    others = usage.Others()
    try:
        results, runtime = _measure(arguments)
    except (RunError, RingError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    described = setting.describe(others.share(), f"{runtime}, {_GUESTS[arguments.channel]}")
    made = tables(results)
    sys.stdout.write(f"{described}\n")
    for title, rows in made:
        peers = [name for name in PEERS if any(name in row.peers for row in rows)]
        sys.stdout.write(f"\n{title}\n{table(rows, peers)}\n")
    _log(f"took {time.monotonic() - begun_s:.0f} s")
    if arguments.json:
        whole = {"setting": described, "figures": document(made), "samples": dataclasses.asdict(results)}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pods", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer pods")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--channel", choices=sorted(_GUESTS), default="netns", help="how kata-bridge reaches the guests"
    )
    parser.add_argument(
        "--ways", action="store_true", help="also the two ways to wait, each by a plugin of its own"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples and figures")
    parser.add_argument("--tree", type=Path, help="an installed tree, whose launchers are run")
    parser.add_argument("--keep-logs", type=Path, metavar="DIRECTORY", help="copy the logs there")
    parser.add_argument("--k8s-cache", type=Path, default=build.DEFAULT_CACHE, help="of tests/k8s/build.py")
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> tuple[Results, str]:
    """Run the bench; returns the results and the runtime's version. Raises RunError, RingError."""
    amounts = QUICK if arguments.quick else FULL
    if arguments.rounds:
        amounts = dataclasses.replace(amounts, rounds=arguments.rounds)
    binaries, lacks = machine.find(arguments.k8s_cache)
    if lacks:
        raise RunError("; ".join(lacks))
    words = run([binaries["containerd"], "--version"]).decode().split()
    runtime = f"{words[0]} {words[2].partition('+')[0]}"
    tree = arguments.tree.resolve() if arguments.tree else None
    with ExitStack() as stack:
        ring = start_ring(binaries, stack)
        if arguments.keep_logs is not None:
            stack.callback(_keep_logs, ring.directory, arguments.keep_logs)
        tenant = ring.tenants[0]
        policies = {tenant.super_namespace(variant.namespace): variant.name for variant in POLICY_VARIANTS}
        daemons = VcnodeDaemons(ring, tree, policies)
        starter = Starter(ring, tenant)
        groups = rounds.groups(
            starter, daemons, has_wait_plugins=arguments.ways, has_agent=arguments.channel == "agent"
        )
        stack.enter_context(
            _filled(ring, tenant, [variant for group in groups for variant in group.variants])
        )
        _log("the cluster runs")
        return rounds.run(starter, daemons, groups, amounts, _log), runtime


def _filled(ring: Ring, tenant: RingTenant, variants: list[StartVariant]) -> ExitStack:
    """Create everything but pods; the returned stack removes it."""
    stack = ExitStack()
    services.create_runtime_classes(ring, KATA, AGENT)
    for namespace in {rounds.WARM, "shop", *(variant.namespace for variant in variants)}:
        ring.syncer.create_namespace(tenant, namespace)
    gate_networks.install(ring.super_cluster.api)
    addresses = objects.Addresses()
    stack.enter_context(gate_networks.network(ring, tenant, "default", addresses.next()))
    shop = tenant.super_namespace("shop")
    for number in range(_SERVICES):
        name = f"service-{number:04d}"
        at = [addresses.next() for _ in range(_ENDPOINTS)]
        ring.super_cluster.api.create(objects.SERVICES.format(shop), objects.service(name, tenant.key))
        ring.super_cluster.api.create(
            objects.SLICES.format(shop), objects.endpoint_slice(name, tenant.key, at)
        )
    # The tenants' own control planes are not used any more.
    for each in ring.tenants:
        each.apiserver.daemon.stop()
    return stack


def _keep_logs(directory: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for log in directory.glob("*.log"):
        shutil.copy(log, keep)


def _log(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
