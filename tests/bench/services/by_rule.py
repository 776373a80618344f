# SPDX-License-Identifier: Apache-2.0
"""The other peer: one `iptables` process a rule, as VirtualCluster's paper installs rules in Kata guests.

The rules are ours, which are fewer than kube-proxy's, so that only their delivery is compared: no gRPC, no
VM, no certificate, just a shell in the guest's namespace.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.processes import RunError
from tests.bench.services.cluster import NODE, BenchCluster, BenchTenant
from tests.bench.services.guests import BenchGuest, GuestFilter, create, delete
from tests.k8s.ring.api import JsonObject

_TIMEOUT_S = 300.0


def rules_text(cluster: BenchCluster, tenant: BenchTenant) -> str:
    """The ruleset of a guest of the tenant, for iptables, by `kubeproxy_ext render`."""
    api = cluster.apiserver.api
    items: list[JsonObject] = []
    for path, version, kind in (
        ("/api/v1/namespaces", "v1", "Namespace"),
        ("/api/v1/services", "v1", "Service"),
        ("/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1", "EndpointSlice"),
    ):
        items += [{**item, "apiVersion": version, "kind": kind} for item in api.get(path)["items"]]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kubeproxy_ext", "render", "--objects", "-", "--node", NODE),
            *("--tenant", tenant.key, "--pod-ip", "10.9.0.1", "--service-cidr", "10.96.0.0/16"),
            *("--family", "ipv4", "--format", "iptables"),
        ],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    if done.returncode:
        raise RunError(f"kubeproxy_ext render: {done.stderr[-1000:]}")
    return done.stdout


def calls(text: str, variant: str) -> list[list[str]]:
    """A command for each chain and rule of a text for iptables-restore."""
    made: list[list[str]] = []
    table = ""
    for line in text.splitlines():
        words = shlex.split(line)
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and words[1] == "-":
            made.append([f"iptables-{variant}", "-w", "-t", table, "-N", words[0][1:]])
        elif line.startswith("-A "):
            made.append([f"iptables-{variant}", "-w", "-t", table, *words])
    return made


def measure(
    cluster: BenchCluster, kind: GuestFilter, tenant: BenchTenant, text: str, number: int, count: int
) -> tuple[float, int]:
    """Seconds until `count` fresh guests have all rules, one process a rule, all at once; and processes."""
    commands = calls(text, kind.variant)
    script = "\n".join(shlex.join(command) for command in commands)
    guests = create(f"{cluster.prefix}-rule", range(number, number + count), kind, cluster.directory)
    running: list[subprocess.Popen[str]] = []
    try:
        begun_s = time.monotonic()
        running += [_shell(guest, script) for guest in guests]
        for each in running:
            _, errors = each.communicate(timeout=_TIMEOUT_S)
            if each.returncode:
                raise RunError(f"one process a rule: {errors[-1000:]}")
        took_s = time.monotonic() - begun_s
        _check(guests[-1], kind, tenant)
    finally:
        for each in running:
            each.kill()
            each.wait()
        delete(guests)
    return took_s, len(commands)


def scan(guests: Sequence[BenchGuest], kind: GuestFilter) -> float:
    """Seconds for the paper's periodic scan: all rules of every guest, by a process each."""
    program = ["nft", "list", "ruleset"] if kind is GuestFilter.NFT else [f"iptables-{kind.variant}-save"]
    begun_s = time.monotonic()
    for guest in guests:
        guest.namespace.run(*program)
    return time.monotonic() - begun_s


def _shell(guest: BenchGuest, script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        guest.namespace.command("sh", "-ec", script),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(guest.namespace.environment),
    )


def _check(guest: BenchGuest, kind: GuestFilter, tenant: BenchTenant) -> None:
    saved = guest.namespace.run(f"iptables-{kind.variant}-save", "-t", "nat")
    for addresses in tenant.services.values():
        if not all(address in saved for address in addresses):
            raise RunError("one process a rule: a rule is missing")
