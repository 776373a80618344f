# SPDX-License-Identifier: Apache-2.0
"""The real clusters of a run, each started once for all folders that use it, or one skip with the reason."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.k8s import build
from tests.k8s.oracle.report import LINES
from tests.k8s.ring import machine, pods
from tests.k8s.ring.cluster import Ring, start_ring
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.syncer.cluster import SUPER_DNS, SyncedRing, start_synced_ring
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.rings.left_out import items_below, keep_first

_SEED = pytest.StashKey[int]()
_SYNCED_RING = pytest.StashKey[SyncedRing]()
_FIGURES = pytest.StashKey[list[str]]()
_MEMORY = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ring's own options; they are known when tests/k8s is on the command line."""
    group = parser.getgroup("k8s")
    group.addoption(
        "--require-k8s",
        action="store_true",
        help="fail where the k8s ring cannot run, instead of leaving it out",
    )
    group.addoption(
        "--k8s-cache",
        type=Path,
        default=build.DEFAULT_CACHE,
        help="where tests/k8s/build.py put the programs",
    )
    group.addoption(
        "--k8s-direct",
        action="store_true",
        help="run the tests of kubectl straight at the super apiserver, without vn-agent: "
        "what fails there too is no fault of the agent",
    )
    group.addoption(
        "--k8s-save-samples",
        action="store_true",
        help="write the kubelet's pages to tests/k8s/samples",
    )
    group.addoption(
        "--k8s-keep-logs",
        type=Path,
        help="copy the logs of every process of the ring here at the end",
    )
    group.addoption(
        "--oracle-namespaces",
        type=int,
        default=200,
        help="how many random namespaces of Services go to kube-proxy and to us",
    )
    group.addoption(
        "--oracle-changes",
        type=int,
        default=300,
        help="how many random changes of them to follow",
    )
    group.addoption(
        "--oracle-seed",
        type=int,
        help="the namespaces, changes and pods of another run; without it each run draws and prints its own",
    )
    group.addoption(
        "--gate-pods",
        type=int,
        default=120,
        help="how many pods start while kata-bridge is ended again and again",
    )
    group.addoption(
        "--gate-wave",
        type=int,
        default=120,
        help="how many of them start between two checks of kata-bridge's memory",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the ring cannot run, keep one test, which reports the reason."""
    ring_items = items_below(Path(__file__).parent, items)
    if ring_items and _find(config)[1]:
        keep_first(config, items, ring_items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the counts of the kube-proxy oracle, what the syncer's ring cost, and what was measured, also
    after success."""
    seed = config.stash.get(_SEED, None)
    if seed is not None:
        terminalreporter.write_line(f"oracle: --oracle-seed {seed} repeats this run")
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(f"oracle: {line}")
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)
    synced = config.stash.get(_SYNCED_RING, None)
    if synced is not None:
        memory = config.stash.get(_MEMORY, {})
        parts = ", ".join(f"{name} {size}" for name, size in memory.items())
        terminalreporter.write_line(
            f"syncer ring: started in {synced.started_s:.1f} s; {sum(memory.values())} MB at the end: {parts}"
        )


@pytest.fixture(scope="session")
def oracle_seed(pytestconfig: pytest.Config) -> int:
    """The seed of all random namespaces and pods of this run: `--oracle-seed`, or a new one."""
    given: int | None = pytestconfig.getoption("--oracle-seed", None)
    seed = random.randrange(1_000_000) if given is None else given  # noqa: S311 - test data, not secrets
    pytestconfig.stash[_SEED] = seed
    return seed


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines that are printed at the end of the run."""
    return pytestconfig.stash.setdefault(_FIGURES, [])


@pytest.fixture(scope="session")
def k8s_binaries(request: pytest.FixtureRequest) -> build.Binaries:
    """The ring's programs, all of them."""
    config = request.config
    binaries, missing = _find(config)
    if missing:
        reason = f"k8s ring: {'; '.join(missing)}"
        if _is_required(config):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return binaries


@pytest.fixture(scope="session")
def ring(k8s_binaries: build.Binaries, request: pytest.FixtureRequest) -> Iterator[Ring]:
    """The cluster with all its pods running, without vn-agent."""
    config = request.config
    with ExitStack() as stack:
        made = start_ring(k8s_binaries, stack)
        _keep_logs(config, made.directory, stack)
        pods.create_all(made.syncer, *made.tenants)
        yield made


@pytest.fixture(scope="session")
def synced_ring(k8s_binaries: build.Binaries, request: pytest.FixtureRequest) -> Iterator[SyncedRing]:
    """The super cluster of `syncer/` and `operator/`, its nodes and two tenants, without a syncer."""
    config = request.config
    with ExitStack() as stack:
        made = start_synced_ring(k8s_binaries, stack, dns_address=SUPER_DNS, is_dual_stack=True)
        _keep_logs(config, made.directory, stack)
        config.stash[_SYNCED_RING] = made
        yield made
        config.stash[_MEMORY] = made.memory_mb


@pytest.fixture(scope="session")
def syncer(synced_ring: SyncedRing) -> Iterator[SyncerDaemon]:
    """The syncer, ready."""
    made = SyncerDaemon(synced_ring)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def served(ring: Ring, request: pytest.FixtureRequest) -> Ring:
    """The cluster with vn-agent in front of its kubelet."""
    if request.config.getoption("--k8s-direct", False):
        pytest.skip("k8s ring: --k8s-direct leaves vn-agent out")
    ring.agent.start()
    return ring


@pytest.fixture(scope="session")
def acme(ring: Ring) -> RingTenant:
    """The tenant most tests are run as."""
    return ring.tenants[0]


@pytest.fixture(scope="session")
def acme_x(ring: Ring) -> RingTenant:
    """The other tenant, whose key begins like the first one's."""
    return ring.tenants[1]


@pytest.fixture
def kubectl(ring: Ring, acme: RingTenant, request: pytest.FixtureRequest) -> Kubectl:
    """The first tenant's kubectl at its own apiserver, by WebSocket where that is a choice."""
    if request.config.getoption("--k8s-direct", False):
        direct = ring.super_kubectl
        return Kubectl(direct.network, direct.binary, direct.kubeconfig, acme.super_namespace("default"))
    request.getfixturevalue("served")
    return acme.kubectl


@pytest.fixture(params=["websocket", "spdy"])
def streaming(kubectl: Kubectl, request: pytest.FixtureRequest) -> Kubectl:
    """The same, once for each protocol of streams."""
    return Kubectl(
        kubectl.network,
        kubectl.binary,
        kubectl.kubeconfig,
        kubectl.namespace,
        websockets=request.param == "websocket",
    )


def _is_required(config: pytest.Config) -> bool:
    rings: str = config.getoption("--rings-required", "") or ""
    return bool(config.getoption("--require-k8s", False)) or "k8s" in rings.split(",")


def _find(config: pytest.Config) -> tuple[build.Binaries, list[str]]:
    cache: Path = config.getoption("--k8s-cache", build.DEFAULT_CACHE)
    return machine.find(cache)


def _keep_logs(config: pytest.Config, directory: Path, stack: ExitStack) -> None:
    """Copy all logs at the end of the ring, where the run asks for them."""
    target: Path | None = config.getoption("--k8s-keep-logs", None)
    if target is not None:
        stack.callback(_copy_logs, directory, target)


def _copy_logs(directory: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in (*directory.glob("**/*.log"), *directory.glob("**/*.jsonl")):
        shutil.copy(path, target / "-".join(path.relative_to(directory).parts))
