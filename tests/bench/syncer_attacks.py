# SPDX-License-Identifier: Apache-2.0
"""A neighbour's latency at vc-syncer while a tenant attacks it: `python -m tests.bench.syncer_attacks`.

README.md of tests/bench explains the method. Exit code 0 for any figures, 1 when something did not run.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from daemonkit.kube.resources import CONFIG_MAPS, PODS
from daemonkit.status.server import StatusError, fetch
from daemonkit.tasks import Tasks
from devkit.kube import storage
from tests.bench import setting, usage
from tests.bench.figures import laid_out
from tests.functional.syncer.clusters import SyncedClusters, synced_clusters
from tests.functional.syncer.hostile_apiserver import WATCHES, fat_pod, hostile_apiserver

# The bound of a neighbour's p99 under attack, as a multiple of its p99 in quiet.
BOUND = 1.3
QUIET, CORES, FAT_POD = "quiet", "busy-cores", "fat-pod"
# How many tenants attack at once: of lines without an end as many as fill the memory of a process.
_TENANTS = {"endless-lines": 5}
_NEIGHBOUR = "acme"
_PERIOD_S = 0.05
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What one slice measured: milliseconds from a ConfigMap's creation to the super cluster's, and of pages.

    `missing` did not arrive in time. `stop_s` is from SIGTERM to the end.
    """

    name: str
    p50_ms: float
    p99_ms: float
    missing: int
    healthz_p50_ms: float
    healthz_most_ms: float
    stop_s: float
    cpu_share: float
    rss_mb: float


def main() -> int:
    arguments = _arguments()
    others = usage.Others()
    try:
        figures = [asyncio.run(_measure(name, arguments.seconds)) for name in (QUIET, CORES, *arguments.only)]
    except (AssertionError, OSError, TimeoutError) as error:
        sys.stderr.write(f"bench: {type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(f"{setting.describe(others.share(), 'fake API servers, a real vc-syncer')}\n\n")
    sys.stdout.write(f"{_table(figures)}\n")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in figures], indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    attacks = (*sorted(WATCHES), FAT_POD)
    parser = argparse.ArgumentParser(prog="python -m tests.bench.syncer_attacks", description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: tuple(text.split(",")),
        default=attacks,
        metavar="ATTACKS",
        help=f"of {','.join(attacks)}",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each attack")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(attacks):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    return arguments


async def _measure(name: str, seconds: float) -> AttackFigures:
    sys.stderr.write(f"bench: {name}\n")
    with tempfile.TemporaryDirectory(prefix="vcnode-attacks-") as directory:
        async with contextlib.AsyncExitStack() as stack:
            clusters = await stack.enter_async_context(
                synced_clusters(Path(directory), _NEIGHBOUR, *([FAT_POD] if name == FAT_POD else []))
            )
            for plane in clusters.tenants.values():
                plane.create_namespace("web", uid=f"{plane.key}-1")
            await clusters.start()
            await stack.enter_async_context(_attacked(clusters, name))
            return await _slice(clusters, name, seconds)


@contextlib.asynccontextmanager
async def _attacked(clusters: SyncedClusters, name: str) -> AsyncIterator[None]:
    """The attack has begun, and goes on."""
    async with contextlib.AsyncExitStack() as stack:
        if name == CORES:
            for _ in range(2):
                await stack.enter_async_context(_busy_core())
        elif name == FAT_POD:
            clusters.tenants[FAT_POD].storage.create(PODS, fat_pod("fat"))
        elif name != QUIET:
            for number in range(_TENANTS.get(name, 1)):
                kubeconfig = await stack.enter_async_context(hostile_apiserver(name))
                (clusters.directory / "tenants" / f"hostile-{number}.kubeconfig").write_text(kubeconfig)
            last = f"hostile-{_TENANTS.get(name, 1) - 1}.kubeconfig"
            await clusters.until_status(lambda tenants: last in tenants, _DEADLINE_S)
        yield


@contextlib.asynccontextmanager
async def _busy_core() -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def _slice(clusters: SyncedClusters, name: str, seconds: float) -> AttackFigures:
    process = clusters.process
    assert process is not None
    arrived: dict[str, float] = {}
    namespace = f"{_NEIGHBOUR}-web"

    def note(_: object) -> None:
        for created in created_s.keys() - arrived.keys():
            with contextlib.suppress(storage.StatusError):
                clusters.super.storage.get(CONFIG_MAPS, namespace, created)
                arrived[created] = time.perf_counter()

    created_s: dict[str, float] = {}
    clusters.super.storage.on_write.append(note)
    pages_ms: list[float] = []
    tasks = Tasks("pages")
    tasks.spawn(_ask_pages(clusters, pages_ms), "healthz")
    cpu_s, begun_s = usage.cpu_s([process.pid]), time.perf_counter()
    while time.perf_counter() < begun_s + seconds:
        created = f"c-{len(created_s)}"
        created_s[created] = time.perf_counter()
        clusters.tenants[_NEIGHBOUR].create_config_map("web", created, {"n": created})
        await asyncio.sleep(_PERIOD_S)  # pace: of the load
    lasted_s = time.perf_counter() - begun_s
    cpu_share = (usage.cpu_s([process.pid]) - cpu_s) / lasted_s
    with contextlib.suppress(AssertionError):
        await clusters.until(partial(_have_all_arrived, created_s, arrived), _DEADLINE_S)
    rss_mb = usage.memory(process.pid).rss_mb
    await tasks.close(10.0)
    stopped_s = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.wait(), _DEADLINE_S)
    waits_ms = [1_000 * (at_s - created_s[each]) for each, at_s in arrived.items()]
    return AttackFigures(
        name,
        _quantile(waits_ms, 0.5),
        _quantile(waits_ms, 0.99),
        len(created_s) - len(arrived),
        _quantile(pages_ms, 0.5),
        max(pages_ms, default=float("nan")),
        time.perf_counter() - stopped_s,
        cpu_share,
        rss_mb,
    )


def _have_all_arrived(created_s: dict[str, float], arrived: dict[str, float]) -> bool:
    return created_s.keys() == arrived.keys()


async def _ask_pages(clusters: SyncedClusters, pages_ms: list[float]) -> None:
    while True:
        begun_s = time.perf_counter()
        with contextlib.suppress(StatusError, OSError):
            await asyncio.to_thread(fetch, clusters.socket, "/healthz", _DEADLINE_S)
        pages_ms.append(1_000 * (time.perf_counter() - begun_s))
        await asyncio.sleep(0.1)  # pace: of the load


def _quantile(values: Sequence[float], share: float) -> float:
    if len(values) < 2:
        return float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]


def _table(figures: Sequence[AttackFigures]) -> str:
    quiet = figures[0]
    head = (
        *("attack", "p50 ms", "p99 ms", "p99 / quiet", f"<= {BOUND:g}", "missing", "healthz p50 ms", "most"),
        *("SIGTERM s", "CPU", "RSS MB"),
    )
    rows = [head]
    for each in figures:
        ratio = each.p99_ms / quiet.p99_ms
        is_attack = each.name not in (QUIET, CORES)
        rows.append(
            (
                each.name,
                f"{each.p50_ms:.1f}",
                f"{each.p99_ms:.1f}",
                f"{ratio:.2f}",
                ("ok" if ratio <= BOUND else "ABOVE") if is_attack else "",
                str(each.missing),
                f"{each.healthz_p50_ms:.1f}",
                f"{each.healthz_most_ms:.0f}",
                f"{each.stop_s:.2f}",
                f"{each.cpu_share:.0%}",
                f"{each.rss_mb:.0f}",
            )
        )
    return laid_out(rows, {0, 4})


if __name__ == "__main__":
    sys.exit(main())
