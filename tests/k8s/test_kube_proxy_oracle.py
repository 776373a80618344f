# SPDX-License-Identifier: Apache-2.0
"""The real kube-proxy as oracle: random namespaces of Services go to it and to us, and packets decide.

Each namespace has three to six Services and their EndpointSlices, drawn anew in each run and repeatable with
`--oracle-seed`, which a run and a failure print. They are written to a real API server, which validates them.
On each of two nodes a real kube-proxy, one in mode iptables and one in mode nftables, writes a node's
namespace; a guest beside it gets the rules of kubeproxy-ext, by the daemon's and the guest agent's own code.

- `test_packets_end_alike`: every address and port of every Service of every namespace, wrong ports and
  protocols, node ports, free addresses of the service range, on both nodes and both sides. A probe is the
  first packet of a flow, crafted and sent through the kernel from a pod behind the node, and from the guest.
  It is repeated until all ends are seen (`oracle/probing.py`): endpoints by their arrival, REJECT by the ICMP
  error or RST, DROP by silence.
- `test_connections_end_alike`: one probe for each kind of outcome in each namespace with a real socket, in
  both directions.
- `test_affinity_ends_alike`: Services with affinity, forgotten clients between packets; the timeouts are read
  from both sides' rules.
- `test_changes_are_followed`: hundreds of random changes under long-lived flows and clients, with kube-proxy
  and deltas following; changed Services are probed again, and some of the rest.
- `test_scenarios_are_followed`: the same with chosen changes (`oracle/scenarios.py`).

`oracle/differences.py` has the accepted differences with their reasons; any other fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.k8s.oracle.affinity import probe_clients, probes_with_affinity
from tests.k8s.oracle.change_run import ChangeRun, count_flows
from tests.k8s.oracle.comparing import compare, failure_message
from tests.k8s.oracle.connecting import connect, sample
from tests.k8s.oracle.laboratory import Laboratory, build_laboratory
from tests.k8s.oracle.ours import verify_installed_rules
from tests.k8s.oracle.report import LINES
from tests.k8s.oracle.timeouts import wrong_timeouts
from tests.k8s.ring.cluster import Ring

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def laboratory(ring: Ring, oracle_seed: int, request: pytest.FixtureRequest) -> Iterator[Laboratory]:
    """The namespaces in one cluster, on every node and in every guest."""
    config = request.config
    count: int = config.getoption("--oracle-namespaces", 200)
    with ExitStack() as stack:
        made = build_laboratory(oracle_seed, count, ring, stack)
        config.stash[LINES] = made.figures.lines
        yield made
        accepted = ", ".join(f"{count} {name}" for name, count in made.figures.accepted.most_common())
        made.figures.lines.append(f"{made.packets} packets; differences accepted: {accepted}")


def test_packets_end_alike(laboratory: Laboratory) -> None:
    begin, problems = time.monotonic(), []
    for comparison in laboratory.comparisons:
        probes = laboratory.probes(comparison, laboratory.namespaces)
        problems += compare(laboratory, comparison, probes)
        laboratory.figures.lines.append(
            f"{comparison.node.name}, {comparison.mode}: {len(probes)} probes, "
            f"{time.monotonic() - begin:.0f} s"
        )
    assert not problems, failure_message(laboratory, problems)


def test_connections_end_alike(laboratory: Laboratory) -> None:
    begin, problems = time.monotonic(), []
    for comparison in laboratory.comparisons:
        if not comparison.agreed:
            problems += compare(laboratory, comparison, laboratory.probes(comparison, laboratory.namespaces))
        problems += connect(laboratory, comparison, sample(laboratory, comparison))
    laboratory.figures.lines.append(
        f"{laboratory.figures.connections} flows with real sockets on each side, "
        f"{time.monotonic() - begin:.0f} s"
    )
    assert not problems, failure_message(laboratory, problems)


def test_affinity_ends_alike(laboratory: Laboratory) -> None:
    begin, problems, count = time.monotonic(), [], 0
    for comparison in laboratory.comparisons:
        probes = probes_with_affinity(laboratory, comparison)
        if not comparison.agreed:
            problems += compare(laboratory, comparison, laboratory.probes(comparison, laboratory.namespaces))
        count += len(probes)
        problems += probe_clients(comparison, probes)
        problems += wrong_timeouts(comparison)
    laboratory.figures.lines.append(f"{count} addresses with affinity, {time.monotonic() - begin:.0f} s")
    assert not problems, failure_message(laboratory, problems)


def test_changes_are_followed(laboratory: Laboratory, request: pytest.FixtureRequest) -> None:
    begin = time.monotonic()
    change_run = ChangeRun(laboratory, range(laboratory.drawn), "changes")
    for problems in change_run.steps(request.config.getoption("--oracle-changes", 300)):
        assert not problems, failure_message(laboratory, problems)
    problems = [problem for comparison in laboratory.comparisons for problem in wrong_timeouts(comparison)]
    assert not problems, failure_message(laboratory, problems)
    ours = laboratory.ours
    flows = count_flows(change_run.long_lived_flows)
    laboratory.figures.lines.append(
        f"{change_run.made} changes with {flows} long-lived flows and clients, "
        f"{ours.deltas} deltas and {ours.wholes} whole rulesets, {ours.flushed} conntrack entries deleted, "
        f"{time.monotonic() - begin:.0f} s"
    )


def test_scenarios_are_followed(laboratory: Laboratory) -> None:
    begin = time.monotonic()
    change_run = ChangeRun(laboratory, laboratory.scenario_numbers, "scenarios")
    for problems in change_run.scenario_steps():
        assert not problems, failure_message(laboratory, problems)
    flows = count_flows(change_run.long_lived_flows)
    laboratory.figures.lines.append(
        f"{change_run.made} changes of scenarios with {flows} long-lived flows, "
        f"{time.monotonic() - begin:.0f} s"
    )


def test_kernels_have_the_rendered_rules(laboratory: Laboratory) -> None:
    assert all(verify_installed_rules(comparison.guest) for comparison in laboratory.comparisons)
