# SPDX-License-Identifier: Apache-2.0
"""Watches the daemons: restarts those that end, samples them, reads their logs, counts audit lines."""

import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.bench import usage
from tests.soak.answers import LoadAnswer
from tests.soak.audit import audit_problems
from tests.soak.faults import FaultError
from tests.soak.growth import UsageSample
from tests.soak.recorder import Recorder
from tests.waiting import holds_within
from vcnode.terminal import ToolError
from vcnode_demo.daemon import Daemon, VnAgent

SAMPLE_S = 1.0
DEADLINE_S = 60.0
# What a log line of these levels is worth: an answer that failed, unless a fault allows it.
_BAD_LEVELS = frozenset({"error", "critical"})
# Those by tenant end with their tenant.
_REQUESTS = "vcnode_vnagent_request_duration_seconds_count"
_LOST = "vcnode_vnagent_audit_lines_lost_total"


class Supervisor:
    """`start` and `stop` its thread. `is_quiet` is set by the run: no fault is at work."""

    def __init__(self, daemons: Mapping[str, Daemon], agent: VnAgent, recorder: Recorder) -> None:
        self._daemons = daemons
        self._agent = agent
        self._recorder = recorder
        self.is_quiet = False
        self.samples: list[UsageSample] = []
        # Names of pods that only their owner knows, and its cluster key.
        self.owners: dict[str, str] = {}
        self._lock = threading.Lock()  # a daemon is either watched or handled by a fault
        self._read: dict[str, int] = {}  # bytes of each log
        self._looked_s: dict[str, float] = {}  # at each log
        self._audit_offset = 0  # where the lines of this life of vn-agent begin
        self._moved_lines = 0  # of this life, in files that were moved away
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and read the rest of the logs."""
        self._is_ending.set()
        self._thread.join(DEADLINE_S)
        for name, daemon in self._daemons.items():
            self._read_log(name, daemon)

    def kill(self, daemon: Daemon) -> None:
        """Kill it and start it again, as systemd does. Raises FaultError if it does not become ready."""
        with self._lock:
            daemon.kill()
            if daemon is self._agent:
                self._begin_audit()
            self._start(daemon)

    def move_audit_log(self) -> None:
        """Move vn-agent's audit log away, let it open another one, and count what the old one had."""
        with self._lock:
            file = self._agent.audit_file
            moved = file.with_suffix(".moved")
            file.rename(moved)
            os.kill(self._agent.pid, signal.SIGHUP)
            if not holds_within(file.exists, DEADLINE_S):
                raise FaultError("vn-agent did not open its audit log again after SIGHUP")
            self._moved_lines += self._count(moved, self._audit_offset)
            self._audit_offset = 0
            moved.unlink()

    def _begin_audit(self) -> None:
        """Check the lines of vn-agent's last life; those that it had not written are lost with it."""
        file = self._agent.audit_file
        self._count(file, self._audit_offset)
        self._audit_offset, self._moved_lines = file.stat().st_size, 0

    def judge_audit(self) -> str:
        """At the end, without load: compare audit lines with decided requests. Empty if they are equal."""
        file, offset = self._agent.audit_file, self._audit_offset

        def is_equal() -> bool:
            return self._moved_lines + _lines(file, offset) == self._decided()

        is_well = holds_within(is_equal, DEADLINE_S)
        self._count(file, offset)
        if is_well:
            return ""
        found = self._moved_lines + _lines(file, offset)
        return f"the audit log has {found} lines of {self._decided():.0f} decided requests"

    def _decided(self) -> float:
        rows = [row for row in self._agent.metrics() if row.startswith(f"{_REQUESTS}{{")]
        return sum(float(row.rpartition(" ")[2]) for row in rows) - self._agent.metric(_LOST)

    def _count(self, file: Path, offset: int) -> int:
        """Count the lines and check each."""
        data = _whole_lines(file, offset)
        for problem in audit_problems(data, self.owners):
            self._recorder.violation(problem)
        return len(data)

    # ---- the thread

    def _run(self) -> None:
        while not self._is_ending.wait(SAMPLE_S):
            with self._lock:
                for name, daemon in self._daemons.items():
                    self._look_at(name, daemon)

    def _look_at(self, name: str, daemon: Daemon) -> None:
        if daemon.exit_code() is not None:
            self._recorder.violation(f"{name} ended by itself, with exit code {daemon.exit_code()}")
            try:
                self._start(daemon)
            except FaultError as error:
                self._recorder.violation(str(error))
            return
        self._read_log(name, daemon)
        try:
            self.samples.append(self._sample(name, daemon.pid))
        except OSError:
            return  # it ends just now

    def _start(self, daemon: Daemon) -> None:
        began_s = self._recorder.now_s()
        daemon.launch()
        while True:
            try:
                return daemon.wait()
            except ToolError as error:
                if daemon.exit_code() is not None or self._recorder.now_s() - began_s > DEADLINE_S:
                    raise FaultError(f"{daemon.name} did not start again: {error}") from error

    def _sample(self, name: str, pid: int) -> UsageSample:
        status = Path(f"/proc/{pid}/status").read_text()
        threads = next(line for line in status.splitlines() if line.startswith("Threads:")).split()[1]
        return UsageSample(
            self._recorder.now_s(),
            name,
            pid,
            usage.memory(pid).pss_mb,
            sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
            int(threads),
            self.is_quiet,
        )

    def _read_log(self, name: str, daemon: Daemon) -> None:
        offset, before_s = self._read.get(name, 0), self._looked_s.get(name, 0.0)
        self._looked_s[name] = self._recorder.now_s()
        with daemon.log_file.open("rb") as log:
            log.seek(offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[name] = offset + len(whole)
        for line in whole.splitlines():
            self._judge_line(name, line, before_s)

    def _judge_line(self, daemon: str, line: bytes, since_s: float) -> None:
        """Take an error as an answer that failed since the last look."""
        try:
            event = json.loads(line)
            level, text = event["level"], f"{event['message']} {line.decode()}"
        except (ValueError, KeyError):
            level, text = "error", f"not a log line: {line.decode(errors='replace')}"
        if "Traceback" in text or level in _BAD_LEVELS:
            outcome = f"{level}: {text}"
            self._recorder.add(LoadAnswer(since_s, self._recorder.now_s(), f"log of {daemon}", "-", outcome))


def _whole_lines(file: Path, offset: int) -> list[bytes]:
    with file.open("rb") as lines:
        lines.seek(offset)
        return lines.read().splitlines()


def _lines(file: Path, offset: int) -> int:
    return len(_whole_lines(file, offset))
