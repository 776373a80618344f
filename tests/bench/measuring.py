# SPDX-License-Identifier: Apache-2.0
"""One slice of load against one proxy, and the samples that come out of it."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench import usage
from tests.bench.fixture import (
    CONTAINER,
    FLOOD_POD,
    NAMESPACE,
    NODE,
    PODS,
    SIZED_PODS,
    Fixture,
    super_namespace,
    tenant_key,
)
from tests.bench.processes import Process
from tests.bench.subjects import BenchMachine, RunningProxy

TUNNELS, MANY_TUNNELS = 500, 2_000
# Times the pods: as many different requests as a connection makes in seconds.
LINE_COUNTS = 50
UPSTREAM_CHUNK_BYTES = (32 << 10) - 8  # upstream/main.go; it sends whole chunks only
# How long a process has to give memory back after the last tunnel has been opened.
MEMORY_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class LoadSlice:
    """A kind of load. `amount` is bytes for each download, else seconds."""

    name: str
    mode: str
    conns: int
    pods: tuple[str, ...]
    amount: float


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The results of one slice. Latencies are in microseconds, `cpu_s` is the proxy's.

    `waited_s` is how long the proxy's threads waited for their core.
    """

    operations: int
    total_bytes: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_s: float
    waited_s: float
    cipher: str


@dataclass(frozen=True, slots=True)
class MemorySample:
    """A fresh process, and the same one with 500 idle tunnels, then with 2 000. MB of 10^6 bytes."""

    start_s: float
    start_pss_mb: float
    start_rss_mb: float
    start_own_mb: float
    tunnels_pss_mb: float
    tunnels_rss_mb: float
    tunnels_own_mb: float
    closed_rss_mb: float
    many_pss_mb: float


REQUESTS = (
    LoadSlice("c1", "requests", 1, PODS, 1.0),
    LoadSlice("c32", "requests", 32, PODS, 1.5),
    LoadSlice("c32-sized", "requests", 32, SIZED_PODS, 1.0),
)
PACED = LoadSlice("paced", "paced", 16, PODS, 2.0)
STREAMS = (
    LoadSlice("stream1", "stream", 1, (FLOOD_POD,), 512 << 20),
    LoadSlice("stream4", "stream", 4, (FLOOD_POD,), 160 << 20),
)
EXECS = (LoadSlice("exec1", "exec", 1, PODS, 1.5), LoadSlice("exec4", "exec", 4, PODS, 1.5))


class ProxyBench:
    """Runs slices. The caller of every load is the fixture's first tenant."""

    def __init__(self, machine: BenchMachine, files: Fixture, upstream: str, *, scale: float) -> None:
        self._machine = machine
        self._files = files
        self._upstream = upstream
        # The length of every slice is multiplied by this.
        self._scale = scale

    def through(self, proxy: RunningProxy, what: LoadSlice) -> LoadSample:
        """Load the proxy. Raises RunError for a wrong response."""
        load = self._load(what, proxy.address, direct=False)
        try:
            load.read_line()
            before = proxy.process.settled_cpu_s()
            waited_s = proxy.process.waited_s()
            load.write_line("go")
            output = load.read_line()
            waited_s = max(0.0, proxy.process.waited_s() - waited_s)
            load.finish()
            after = proxy.process.settled_cpu_s()
        finally:
            load.stop()
        return _sample(output, after - before, waited_s)

    def direct(self, what: LoadSlice) -> LoadSample:
        """The same load without a proxy, in the super cluster's names."""
        load = self._load(what, self._upstream, direct=True)
        try:
            load.read_line()
            load.write_line("go")
            output = load.read_line()
            load.finish()
        finally:
            load.stop()
        return _sample(output, 0.0, 0.0)

    def memory(self, proxy: RunningProxy) -> MemorySample:
        """Open 500 tunnels through a fresh proxy, measure, and close them; then the same with 2 000."""
        start = usage.memory(proxy.process.pid)
        open_ = self._memory_with(proxy, TUNNELS)
        proxy.process.settled_cpu_s()
        closed = usage.memory(proxy.process.pid)
        many = self._memory_with(proxy, MANY_TUNNELS)
        return MemorySample(
            proxy.start_s,
            *(start.pss_mb, start.rss_mb, start.anonymous_mb),
            *(open_.pss_mb, open_.rss_mb, open_.anonymous_mb),
            closed.rss_mb,
            many.pss_mb,
        )

    def _memory_with(self, proxy: RunningProxy, tunnels: int) -> usage.MemoryUsage:
        load = self._load(LoadSlice("tunnels", "tunnels", tunnels, PODS, 1.0), proxy.address, False)
        try:
            load.read_line()
            load.write_line("go")
            load.read_line()
            # Measured at once, the memory for opening tunnels would count as that of idle ones. Each subject
            # gets the same time.
            time.sleep(MEMORY_SETTLE_S)  # no event reports that freed memory is returned
            found = usage.memory(proxy.process.pid)
            load.finish()
        finally:
            load.stop()
        return found

    def _load(self, what: LoadSlice, address: str, direct: bool) -> Process:
        files = self._files
        pair = files.kubelet_client if direct else files.caller
        targets = self._machine.directory / "targets"
        targets.write_text("\n".join(_targets(what, direct, self._scale)))
        command: list[str | Path] = [
            self._machine.programs / "load",
            *("-mode", what.mode, "-address", address, "-server-name", NODE),
            *("-cert", pair.certificate, "-key", pair.key),
            *("-ca", files.super_ca if direct else files.serving_ca),
            *("-targets", targets, "-conns", str(what.conns)),
        ]
        if what.mode == "stream":
            command += ["-bytes", str(_stream_bytes(what, self._scale))]
        else:
            command += ["-duration", f"{what.amount * self._scale:.3f}s"]
        return Process(
            f"load {what.name}",
            command,
            self._machine.load_core,
            self._machine.directory / "load.log",
        )


def _stream_bytes(what: LoadSlice, scale: float) -> int:
    return int(what.amount * scale) // UPSTREAM_CHUNK_BYTES * UPSTREAM_CHUNK_BYTES


def _targets(what: LoadSlice, direct: bool, scale: float) -> list[str]:
    """The requested paths, in order. Small requests differ from each other, so that a cache of the last one
    gives no advantage."""
    namespace = super_namespace(tenant_key(0)) if direct else NAMESPACE
    containers = [f"{namespace}/{pod}/{CONTAINER}" for pod in what.pods]
    if what.mode == "stream":
        return [f"/containerLogs/{containers[0]}?limitBytes={_stream_bytes(what, scale)}"]
    if what.mode in ("exec", "tunnels"):
        command = "command=sh&command=-c&command=true"
        return [f"/exec/{containers[0]}?{command}&input=1&output=1&error=1"]
    return [
        f"/containerLogs/{container}?tailLines={lines}&timestamps=true"
        for lines in range(1, LINE_COUNTS + 1)
        for container in containers
    ]


def _sample(output: str, cpu_s: float, waited_s: float) -> LoadSample:
    figures = json.loads(output)
    return LoadSample(
        operations=figures["operations"],
        total_bytes=figures["bytes"],
        seconds=figures["seconds"],
        p50_us=figures["p50_us"],
        p99_us=figures["p99_us"],
        cpu_s=cpu_s,
        waited_s=waited_s,
        cipher=figures["cipher"],
    )


def as_json(sample: LoadSample | MemorySample) -> dict[str, float | int | str]:
    return asdict(sample)
