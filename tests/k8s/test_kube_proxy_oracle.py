# SPDX-License-Identifier: Apache-2.0
"""The real kube-proxy as oracle: random namespaces of Services go to it and to us, and packets decide.

Each namespace is a namespace with three to six Services and their EndpointSlices, drawn anew in each run and
repeatable (`--oracle-seed`, which a run prints and a failure too). They are written to a real API server,
which says what is possible. On each of two nodes a real kube-proxy, one in mode iptables and one in mode
nftables, writes a node's namespace; a guest beside it gets what kubeproxy-ext computes, by the daemon's
and the guest agent's own code.

What is asked how:

- `test_packets_end_alike`: every address and port of every Service of every namespace, wrong ports and
  protocols, node ports, free addresses of the service range, on both nodes and both sides. A question
  is the first packet of a flow, made by hand and sent through the kernel from a pod behind the node,
  and from the guest. It is asked so often that all ends are seen (`oracle/asking.py`): endpoints by
  their arrival, REJECT by the ICMP error or RST, DROP by nothing at all.
- `test_connections_end_alike`: for each kind of answer in each namespace one question with a real socket,
  there and back.
- `test_affinity_ends_alike`: Services with affinity, their memory emptied between packets; how long it
  lasts is read off both sides' rules.
- `test_changes_are_followed`: hundreds of random changes while flows and clients stay, with kube-proxy
  and deltas following; what they touched is asked again, and some of the rest.
- `test_shapes_are_followed`: the same with changes that were thought out (`oracle/shapes.py`).

Where both sides may differ stands in `oracle/differences.py`, with reasons; nothing else is let pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.k8s.oracle.affinity import ask_clients, questions_with_affinity
from tests.k8s.oracle.changing import Changing, counted
from tests.k8s.oracle.connecting import connect, sample
from tests.k8s.oracle.judging import judge, told
from tests.k8s.oracle.laboratory import Laboratory, build_laboratory
from tests.k8s.oracle.ours import kernel_holds
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
    for pair in laboratory.pairs:
        asked = laboratory.questions(pair, laboratory.namespaces)
        problems += judge(laboratory, pair, asked)
        laboratory.figures.lines.append(
            f"{pair.place.node}, {pair.mode}: {len(asked)} questions, {time.monotonic() - begin:.0f} s"
        )
    assert not problems, told(laboratory, problems)


def test_connections_end_alike(laboratory: Laboratory) -> None:
    begin, problems = time.monotonic(), []
    for pair in laboratory.pairs:
        if not pair.agreed:
            problems += judge(laboratory, pair, laboratory.questions(pair, laboratory.namespaces))
        problems += connect(laboratory, pair, sample(laboratory, pair))
    laboratory.figures.lines.append(
        f"{laboratory.figures.connections} flows with real sockets on each side, "
        f"{time.monotonic() - begin:.0f} s"
    )
    assert not problems, told(laboratory, problems)


def test_affinity_ends_alike(laboratory: Laboratory) -> None:
    begin, problems, count = time.monotonic(), [], 0
    for pair in laboratory.pairs:
        asked = questions_with_affinity(laboratory, pair)
        if not pair.agreed:
            problems += judge(laboratory, pair, laboratory.questions(pair, laboratory.namespaces))
        count += len(asked)
        problems += ask_clients(pair, asked)
        problems += wrong_timeouts(pair)
    laboratory.figures.lines.append(f"{count} addresses with affinity, {time.monotonic() - begin:.0f} s")
    assert not problems, told(laboratory, problems)


def test_changes_are_followed(laboratory: Laboratory, request: pytest.FixtureRequest) -> None:
    begin = time.monotonic()
    changing = Changing(laboratory, range(laboratory.drawn), "changes")
    for problems in changing.steps(request.config.getoption("--oracle-changes", 300)):
        assert not problems, told(laboratory, problems)
    problems = [problem for pair in laboratory.pairs for problem in wrong_timeouts(pair)]
    assert not problems, told(laboratory, problems)
    ours = laboratory.ours
    laboratory.figures.lines.append(
        f"{changing.made} changes with {counted(changing.followers)} standing flows and clients, "
        f"{ours.deltas} deltas and {ours.wholes} whole rulesets, {ours.flushed} conntrack entries deleted, "
        f"{time.monotonic() - begin:.0f} s"
    )


def test_shapes_are_followed(laboratory: Laboratory) -> None:
    begin = time.monotonic()
    changing = Changing(laboratory, laboratory.shaped, "shapes")
    for problems in changing.shaped():
        assert not problems, told(laboratory, problems)
    laboratory.figures.lines.append(
        f"{changing.made} changes made by hand with {counted(changing.followers)} standing flows, "
        f"{time.monotonic() - begin:.0f} s"
    )


def test_kernels_hold_the_rendered_rules(laboratory: Laboratory) -> None:
    assert all(kernel_holds(pair.guest) for pair in laboratory.pairs)
