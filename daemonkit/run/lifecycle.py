# SPDX-License-Identifier: Apache-2.0
"""Runs a daemon: signals, notices to the service manager, exit code.

Only this module and `service_manager` talk to systemd; both get the environment from here.

Exit codes: what the body returns; 1 for an unexpected failure; 2 (`command_line`) for arguments or a
configuration that cannot be used.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping

from daemonkit import logs
from daemonkit.files.directories import UnusableDirectoryError
from daemonkit.run.event_loop import DaemonLoop
from daemonkit.run.service_manager import ServiceManager, Supervision, send_notice, supervision

EXIT_FAILED = 1
# `systemctl status` shows it on one line. systemd reads datagrams of 4096 bytes (PIPE_BUF).
MAX_STATUS_CHARACTERS = 500
# The first begins the drain; the second ends the process as a shell reports it: 128 and its number.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logs.get(__name__)


def api_service() -> Mapping[str, str]:
    """The variables in which a pod gets its API server's address, and its own name; empty outside of one.

    The name is there if the manifest passes it on, as `POD_NAME`.
    """
    found = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAME")
    # The one module that reads the environment: the kubelet passes these no other way.
    return {name: os.environ[name] for name in found if name in os.environ}  # noqa: TID251


def terminal_variables() -> Mapping[str, str]:
    """The variables by which a person says what a terminal can show: TERM, and NO_COLOR (no-color.org)."""
    # As above: a terminal is described in no other way.
    return {name: os.environ[name] for name in ("TERM", "NO_COLOR") if name in os.environ}  # noqa: TID251


class Lifecycle:
    """One run of a daemon, between the service manager's signals and its notices.

    `stopping` is set at the first SIGTERM or SIGINT, or by `stop`; the body drains then and
    returns. A second signal ends the process at once.
    """

    def __init__(self, found: Supervision, *, send: Callable[[str, bytes], object]) -> None:
        self.stopping = asyncio.Event()
        self.manager = ServiceManager(found, send=send)
        self._reloads: list[Callable[[], None]] = []
        self._is_ready = False
        self._status = ""
        self._watchdog: asyncio.TimerHandle | None = None

    def on_reload(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop at each SIGHUP; it must not block."""
        self._reloads.append(callback)

    def on_signal(self, number: signal.Signals, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop at each signal `number` of a daemon's own; it must not block."""
        asyncio.get_running_loop().add_signal_handler(number, callback)

    def ready(self, status: str = "") -> None:
        """Send READY=1, once, with a status line if there is one."""
        if not self._is_ready and not self.stopping.is_set():
            self._is_ready = True
            self._status = status
            self.manager.notify(b"READY=1" + (b"\n" + _status_notice(status) if status else b""))

    def set_status(self, status: str) -> None:
        """Send STATUS= if the text differs from the last one, until the daemon stops."""
        if status != self._status and not self.stopping.is_set():
            self._status = status
            self.manager.notify(_status_notice(status))

    def stop(self) -> None:
        """Begin to stop, as on SIGTERM."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.manager.notify(b"STOPPING=1\n" + _status_notice("stopping"))

    def start_watchdog(self) -> None:
        """Send WATCHDOG=1 at half the requested interval, as sd_watchdog_enabled(3) advises.

        From the loop's own timer: a loop that hangs sends none, and is restarted for it.
        """
        watchdog_s = self.manager.watchdog_s
        if watchdog_s is not None:
            self.manager.notify(b"WATCHDOG=1")
            if self.manager.is_abandoned():
                _log.error("the process that starts and stops this one has ended, stopping")
                self.stop()
            self._watchdog = asyncio.get_running_loop().call_later(watchdog_s / 2, self.start_watchdog)

    def stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()

    def signal_stop(self, number: signal.Signals) -> None:
        if self.stopping.is_set():
            _log.warning("exiting at once after a second signal", signal=number.name)
            # Die of the signal itself, so that the parent sees what it was.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _log.info("stopping", signal=number.name)
        self.stop()

    def signal_reload(self) -> None:
        if logs.restore_level():
            _log.info("log level restored", log_level=logs.level_name())
        _log.info("reloading", signal="SIGHUP")
        for callback in self._reloads:
            try:
                callback()
            # Certificates, tenants and settings are re-read by callbacks of their own.
            except Exception as error:  # noqa: BLE001 - one bug must not keep the others from re-reading
                _log.error("reload failed", error=error, traceback=logs.trace(error))


def _status_notice(text: str) -> bytes:
    """STATUS= with a text that peers had a part in, on one line: the next line would be another notice."""
    line = "".join(char if char.isprintable() else " " for char in text[:MAX_STATUS_CHARACTERS])
    return f"STATUS={line}".encode()


def run(
    body: Callable[[Lifecycle], Awaitable[int]],
    *,
    loop_factory: Callable[[], DaemonLoop] = DaemonLoop,
) -> int:
    """Run a daemon until `body` returns; return the process' exit code.

    What `body` raises is logged on one line and becomes exit code 1. `loop_factory` makes the event loop.
    """
    # The one place that reads the environment: systemd passes these no other way.
    found = supervision(os.environ, os.getpid(), os.getppid())  # noqa: TID251
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_run(body, Lifecycle(found, send=send_notice)))
    except UnusableDirectoryError as error:
        # The operator has to mend it: the text has what to do, and a trace would hide it.
        _log.error("cannot start", reason=str(error))
        return EXIT_FAILED
    # The log is collected line by line.
    except Exception as error:  # noqa: BLE001 - the interpreter would print the trace over many lines
        _log.error("the daemon failed", error=error, traceback=logs.trace(error))
        return EXIT_FAILED


async def _run(body: Callable[[Lifecycle], Awaitable[int]], life: Lifecycle) -> int:
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, life.signal_stop, number)
    loop.add_signal_handler(signal.SIGHUP, life.signal_reload)
    life.start_watchdog()
    try:
        return await body(life)
    finally:
        life.stop()
        life.stop_watchdog()
