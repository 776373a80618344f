# SPDX-License-Identifier: Apache-2.0
"""A process that keeps running, and its failures, with a fake program."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest_agent.core.packet_filter import FilterUnavailableError
from guest_agent.kernel.iptables_restore_process import IptablesRestoreProcess
from tests.waiting import wait_until

# Only a failing test waits that long.
_DEADLINE_S = 60.0
# For waits that must time out.
_SHORT_S = 0.2

ONE = "*nat\none\nCOMMIT\n"
TWO = "*filter\ntwo\nCOMMIT\n*nat\nthree\nCOMMIT\n"


def is_gone(pid: int) -> bool:
    """Whether a process has ended, collected or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


class Program:
    """The fake as an executable file, and the texts that it loaded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "restore"
        self.write()

    def write(self) -> None:
        """Replace the file, as a package update does."""
        text = Path(__file__).with_name("fake_iptables_restore.py").read_text()
        made = self.directory / "new"
        made.write_text(f"#!{sys.executable} -IS\n{text}")
        made.chmod(0o755)
        made.rename(self.path)

    def mode(self, mode: str) -> None:
        (self.directory / "mode").write_text(mode)

    @property
    def loaded(self) -> list[str]:
        """The committed tables, with their lines."""
        return [line.partition(" ")[2] for line in self._lines()]

    @property
    def pids(self) -> list[int]:
        """The processes that committed them."""
        return [int(line.partition(" ")[0]) for line in self._lines()]

    def _lines(self) -> list[str]:
        path = self.directory / "loaded"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def make(program: Program) -> Iterator[Callable[..., IptablesRestoreProcess]]:
    made: list[IptablesRestoreProcess] = []

    def make_process(
        *, timeout_s: float = _DEADLINE_S, lock_wait_s: float = _DEADLINE_S, texts: int = 100
    ) -> IptablesRestoreProcess:
        made.append(
            IptablesRestoreProcess(
                program.path, timeout_s=timeout_s, lock_wait_s=lock_wait_s, scripts_per_process=texts
            )
        )
        return made[-1]

    yield make_process
    for each in made:
        each.close()


MakeProcess = Callable[..., IptablesRestoreProcess]


def load(process: IptablesRestoreProcess, text: str = ONE) -> None:
    ended = process.load(text)
    assert (ended.status, ended.errors) == (0, "")


def test_one_process_loads_many_scripts(program: Program, make: MakeProcess) -> None:
    process = make()
    assert process.pid is None
    for number in range(50):
        load(process, f"*nat\nline {number}\nCOMMIT\n")
        assert program.loaded[-1] == f"*nat line {number}"
    assert len(program.loaded) == 50
    assert set(program.pids) == {process.pid}


def test_load_returns_when_all_tables_are_committed(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process, "*filter\nsleep 0.2\nCOMMIT\n*nat\nsleep 0.2\nCOMMIT\n")
    assert program.loaded == ["*filter sleep 0.2", "*nat sleep 0.2"]


def test_a_script_may_exceed_the_pipe(program: Program, make: MakeProcess) -> None:
    process = make()
    lines = "".join(f"line {number}\n" for number in range(200_000))
    load(process, f"*nat\n{lines}COMMIT\n")
    load(process)
    assert program.loaded[0].endswith(" line 199999")
    assert set(program.pids) == {process.pid}


def test_an_error_has_the_line_number_of_its_script(program: Program, make: MakeProcess) -> None:
    process = make()
    for _ in range(3):
        load(process, TWO)
    refused = process.load("*filter\nfine\nCOMMIT\n*nat\nrefuse this\nCOMMIT\n")
    assert refused.status == 2
    assert refused.errors == "restore v0 (fake): Bad argument `this'\n\nError occurred at line: 5"
    assert process.pid is None
    load(process)
    assert program.loaded[-2:] == ["*filter fine", "*nat one"]


def test_a_process_killed_while_idle_is_replaced(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    killed = process.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: is_gone(killed))
    load(process)
    assert process.pid != killed
    assert program.loaded == ["*nat one"] * 2


def test_a_process_killed_during_a_load_is_an_error(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    ended = process.load("*filter\ntwo\nCOMMIT\n*nat\ndie\nCOMMIT\n")
    assert (ended.status, ended.errors) == (-signal.SIGKILL, "")
    load(process)
    assert program.loaded == ["*nat one", "*filter two", "*nat one"]


def test_a_hanging_process_is_killed(make: MakeProcess) -> None:
    process = make(timeout_s=_SHORT_S)
    with pytest.raises(FilterUnavailableError, match=r"restore did not end within 0\.2 s"):
        process.load("*nat\nhang\nCOMMIT\n")
    assert process.pid is None


def test_a_process_that_hangs_later_is_killed_too(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    hung = process.pid
    assert hung is not None
    process._timeout_s = _SHORT_S  # noqa: SLF001 - starting the fake may take longer
    with pytest.raises(FilterUnavailableError, match="did not end"):
        process.load("*nat\nhang\nCOMMIT\n")
    assert is_gone(hung)
    process._timeout_s = _DEADLINE_S  # noqa: SLF001
    load(process)
    assert program.loaded == ["*nat one"] * 2


def test_a_slow_load_outlasts_the_lock_wait(program: Program, make: MakeProcess) -> None:
    process = make(lock_wait_s=0.05)
    load(process, "*nat\nsleep 0.5\nCOMMIT\n")
    assert program.loaded == ["*nat sleep 0.5"]


def test_a_process_that_ends_early_is_an_error(make: MakeProcess) -> None:
    process = make()
    load(process)
    with pytest.raises(FilterUnavailableError, match="ended before it had read everything"):
        process.load("*nat\nquit\nCOMMIT\n")
    load(process)


def test_without_echo_each_script_has_its_own_process(program: Program, make: MakeProcess) -> None:
    program.mode("mute")
    process = make(lock_wait_s=_SHORT_S)
    for _ in range(3):
        load(process)
        assert process.pid is None
    assert program.loaded == ["*nat one"] * 3
    assert len(set(program.pids)) == 3
    assert process.load("*nat\nrefuse this\nCOMMIT\n").errors.endswith("line: 2")


def test_other_output_is_no_echo(program: Program, make: MakeProcess) -> None:
    program.mode("noisy")
    process = make()
    for _ in range(3):
        ended = process.load(ONE)
        assert ended == type(ended)(0, "", "")
    assert program.loaded == ["*nat one"] * 3
    refused = process.load("*nat\nrefuse this\nCOMMIT\n")
    assert refused.status == 2
    assert len(refused.errors) <= 4_000


@pytest.mark.parametrize("mode", ["locked", "locked-old"])
def test_a_held_lock_is_reported_after_lock_wait(program: Program, make: MakeProcess, mode: str) -> None:
    program.mode(mode)
    process = make(lock_wait_s=_SHORT_S)
    with (program.directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        wait_until(
            lambda: (ended := process.load(ONE)).status == 4 and "holding the xtables lock" in ended.errors
        )
    assert process.pid is None
    program.mode("")
    wait_until(lambda: process.load(ONE).status == 0)
    assert program.loaded == ["*nat one"]


def test_a_replaced_program_is_started_anew(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    before = process.pid
    program.write()
    load(process)
    assert process.pid != before
    assert before is not None
    assert is_gone(before)


def test_a_removed_program_is_an_error_until_restored(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    program.path.unlink()
    with pytest.raises(FilterUnavailableError, match="restore: No such file or directory"):
        process.load(ONE)
    program.write()
    load(process)
    assert program.loaded == ["*nat one"] * 2


def test_a_process_loads_scripts_per_process_at_most(program: Program, make: MakeProcess) -> None:
    process = make(texts=3)
    for _ in range(7):
        load(process)
    first, second, third = dict.fromkeys(program.pids)
    assert program.pids == [first] * 3 + [second] * 3 + [third]
    assert is_gone(first)
    assert is_gone(second)


def test_a_script_without_commit_is_refused(program: Program, make: MakeProcess) -> None:
    process = make()
    load(process)
    ended = process.load("*nat\none\n")
    assert ended.status == 1
    assert "COMMIT expected" in ended.errors
    load(process)
    assert program.loaded == ["*nat one"] * 2


def test_close_kills_the_process(make: MakeProcess) -> None:
    process = make()
    load(process)
    pid = process.pid
    assert pid is not None
    process.close()
    assert is_gone(pid)


_TWO_PROCESSES = """
import sys, time
from pathlib import Path
from guest_agent.kernel.iptables_restore_process import IptablesRestoreProcess
kept = [IptablesRestoreProcess(Path(sys.argv[1])) for _ in range(2)]
for each in kept:
    each.load("*nat\\none\\nCOMMIT\\n")
print(*[each.pid for each in kept], flush=True)
time.sleep(600)
"""


def test_processes_end_with_the_agent(program: Program) -> None:
    """Neither of two processes keeps the other's stdin open."""
    with subprocess.Popen(
        [sys.executable, "-c", _TWO_PROCESSES, str(program.path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    ) as holder:
        assert holder.stdout is not None
        pids = [int(word) for word in holder.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(map(is_gone, pids))
        holder.kill()
        wait_until(lambda: all(map(is_gone, pids)))


def test_a_program_without_permission_is_an_error(tmp_path: Path) -> None:
    shutil.copy(Path(__file__), tmp_path / "restore")
    with pytest.raises(FilterUnavailableError, match="restore: Permission denied"):
        IptablesRestoreProcess(tmp_path / "restore").load(ONE)
