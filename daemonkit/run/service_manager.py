# SPDX-License-Identifier: Apache-2.0
"""systemd's side of a daemon: notices, listening sockets that outlive a process, hand-over to the next one.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html is the protocol for notices, and
sd_listen_fds(3) for sockets. systemd starts the next process only when the main process has ended, and a
daemon may have minutes of streams to finish then. So the main process is a script (systemd/hand-over) that
starts the daemon, passes signals on, and ends when the daemon says that the next one may come.
"""

import array
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping

import msgspec

from daemonkit import logs

# sd_listen_fds(3): the first one. systemd passes as many as FileDescriptorStoreMax= at most.
_FIRST_DESCRIPTOR = 3
_MAX_DESCRIPTORS = 64
# To the main process: the daemon takes no more connections and has closed what the next one opens.
HAND_OVER_SIGNAL = signal.SIGUSR2

_log = logs.get(__name__)


class Supervision(msgspec.Struct, frozen=True):
    """What the service manager requests: the address for notices, the watchdog interval, and what it kept.

    `listeners` are descriptors of listening sockets by the names that an earlier process gave them.
    `main_pid` is the script of the hand-over; None without it.
    """

    socket_address: str | None = None
    watchdog_s: float | None = None
    listeners: Mapping[str, int] = msgspec.field(default_factory=dict)
    main_pid: int | None = None


def supervision(environment: Mapping[str, str], pid: int, parent_pid: int = 0) -> Supervision:
    """Read the variables of sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3), and HAND_OVER_PID.

    Malformed ones count as not set, as do those for a process that is neither this one nor its main process.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    usec = _number(environment.get("WATCHDOG_USEC", ""))
    main_pid = parent_pid if environment.get("HAND_OVER_PID") == str(parent_pid) else None
    own = {str(pid)} if main_pid is None else {str(pid), str(main_pid)}
    is_watched = environment.get("WATCHDOG_PID", str(pid)) in own
    return Supervision(
        # "/" is a path, "@" a name in the abstract space; others (vsock:) are not for us.
        address if address[:1] in ("/", "@") else None,
        usec / 1e6 if is_watched and usec > 0 else None,
        _listeners(environment) if environment.get("LISTEN_PID") in own else {},
        main_pid,
    )


def _listeners(environment: Mapping[str, str]) -> dict[str, int]:
    count = min(_number(environment.get("LISTEN_FDS", "")), _MAX_DESCRIPTORS)
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    if len(names) != count:
        return {}
    return {name: _FIRST_DESCRIPTOR + place for place, name in enumerate(names)}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


class ServiceManager:
    """Sends notices, and keeps listening sockets with systemd. Without one, each method does nothing."""

    def __init__(
        self,
        found: Supervision,
        *,
        send: Callable[[str, bytes], object],
        send_descriptor: Callable[[str, bytes, int], bool] | None = None,
        kill: Callable[[int, signal.Signals], None] = os.kill,
        parent_pid: Callable[[], int] = os.getppid,
    ) -> None:
        self._address = found.socket_address
        self.watchdog_s = found.watchdog_s
        self._listeners = dict(found.listeners)
        self._main_pid = found.main_pid
        self._send = send
        self._send_descriptor = send_descriptor or send_notice
        self._kill = kill
        self._parent_pid = parent_pid
        self._has_kept = False
        self._has_failed_to_keep = False
        self._has_handed_over = False

    def notify(self, message: bytes) -> None:
        """Send a message of sd_notify(3). After the hand-over it would count as the next process' own."""
        if self._address is not None and not self._has_handed_over:
            self._send(self._address, message)

    def take_listeners(self, address: str, ports: Mapping[str, int]) -> dict[str, socket.socket]:
        """`take_listener` for each name with its port.

        All others are closed, here and in the service manager: they would take connections that no process
        accepts.
        """
        found = {name: self.take_listener(name, address, port) for name, port in ports.items()}
        for name, descriptor in self._listeners.items():
            with contextlib.suppress(OSError):
                os.close(descriptor)
            self._forget(name)
        self._listeners.clear()
        return {name: kept for name, kept in found.items() if kept is not None}

    def take_listener(self, name: str, address: str, port: int) -> socket.socket | None:
        """The listening socket that an earlier process kept under this name, if it has this address.

        Another one is closed, here and in the service manager: the configuration has changed. IPv6 addresses
        are compared as the kernel writes them.
        """
        descriptor = self._listeners.pop(name, None)
        if descriptor is None:
            return None
        try:
            found = socket.socket(fileno=descriptor)
        except OSError as error:
            _log.error("the kept listener cannot be used", name=name, error=error)
            return None
        bound = found.getsockname()
        if found.family in (socket.AF_INET, socket.AF_INET6) and bound[:2] == (address, port):
            found.set_inheritable(False)
            return found
        found.close()
        self._forget(name)
        return None

    def _forget(self, name: str) -> None:
        self.notify(f"FDSTOREREMOVE=1\nFDNAME={name}".encode())

    def keep_listener(self, name: str, descriptor: int) -> None:
        """Have the service manager keep it open for the next process: its backlog waits meanwhile."""
        if self._address is not None:
            message = f"FDSTORE=1\nFDNAME={name}".encode()
            is_kept = self._send_descriptor(self._address, message, descriptor)
            self._has_failed_to_keep |= not is_kept
            # Of several each must outlive this process.
            self._has_kept = not self._has_failed_to_keep

    @property
    def can_hand_over(self) -> bool:
        """Whether the next process may start while this one drains."""
        return self._has_kept and self._main_pid is not None and not self._has_handed_over

    def hand_over(self) -> None:
        """Have the next process started, if systemd restarts this one: it has the listeners and the files.

        Does nothing unless `can_hand_over`.
        """
        if self._main_pid is None or not self.can_hand_over:
            return
        self._has_handed_over = True
        try:
            self._kill(self._main_pid, HAND_OVER_SIGNAL)
        except OSError as error:
            _log.warning("the main process cannot be signalled", error=error)

    def is_abandoned(self) -> bool:
        """Whether the main process has ended without a hand-over. Nothing could stop this process then."""
        return (
            self._main_pid is not None and not self._has_handed_over and self._parent_pid() != self._main_pid
        )


def send_notice(address: str, message: bytes, descriptor: int | None = None) -> bool:
    """Send one message to the service manager, with a descriptor or without; False for a logged failure."""
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.setblocking(False)
            # Not `socket.send_fds`: it leaves its argument `address` out (before Python 3.13).
            rights = (
                [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _bytes_of(descriptor))]
            )
            notifier.sendmsg([message], rights, 0, target)
    except OSError as error:
        _log.warning("the service manager cannot be reached", address=address, error=error)
        return False
    return True


def _bytes_of(descriptor: int) -> bytes:
    return array.array("i", [descriptor]).tobytes()
