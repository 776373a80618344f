# SPDX-License-Identifier: Apache-2.0
"""The resolver of each pod, and the resolv.conf that the containers of its sandbox mount.

Each living sandbox has a directory with two files. Containers mount `resolv.conf`, so it is rewritten in
place and never replaced. `gate.json` is our record of the sandbox. Both are read after a restart, so that a
resolver stays in force until dnsconfig submits another.

A resolver is issued for networks, and a pod's next sandbox may be attached to other networks than its last.
A resolver applies only to sandboxes on the networks that it was issued for. A sandbox on other networks gets
none, also no earlier one: that is not kept up to date, and its DNS server may be gone. Running containers
keep their file.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daemonkit import logs
from daemonkit.files import directories
from guest_agent import resolv_conf
from kata_bridge.sandboxes.core.sandbox import is_sandbox_id
from kata_bridge.start_gate.core.decision import SubmittedResolver

# Of pods without a sandbox (yet). dnsconfig withdraws a resolver when its pod is gone.
MAX_RESOLVERS = 10_000
# The latest of one sandbox: more than a pod has at once, but a crashing container makes ever new ones.
MAX_ALLOWED = 64
_MAX_RECORD_BYTES = 64 << 10

_FILE, _RECORD, _NEW = "resolv.conf", "gate.json", "gate.new"
# Whether a resolver was submitted.
_SUBMITTED_KEY = "isSaid"  # saved as: a key of gate.json
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _PodNetworks:
    """The pod of a sandbox, and the networks that it is attached to; none while unknown (after a restart)."""

    uid: str
    networks: tuple[str, ...]


class ResolvConfs:
    """The latest resolver of each pod, by UID, and the files of sandboxes in `directory`."""

    def __init__(self, directory: Path) -> None:
        """Make the directory, or read what an earlier life left in it. Raises `UnusableDirectoryError`."""
        self._directory = directory
        self._latest: dict[str, SubmittedResolver] = {}
        self._sandboxes: dict[str, _PodNetworks] = {}
        # By sandbox: the latest resolver, if it was issued for the sandbox's networks.
        self._applied: dict[str, SubmittedResolver] = {}
        self._allowed: dict[str, list[str]] = {}
        # Sandboxes with a container that the kubelet must try again once it may start.
        self._blocked: set[str] = set()
        # Sandboxes whose files could not be written yet: the disk was full when they started.
        self._unwritten: set[str] = set()
        # Directories without a record: an earlier life was killed before it wrote one, or when it removed it.
        self._without_record: set[str] = set()
        # Another user who may write here, or above, could lead root's writes elsewhere by a link.
        self._descriptor = directories.open_prepared(directory, 0o711)
        self._restore()

    # ---- resolvers

    def latest(self, uid: str) -> SubmittedResolver | None:
        """The latest resolver of a pod, for whichever networks; None before the first one."""
        return self._latest.get(uid)

    def applied(self, sandbox: str) -> SubmittedResolver | None:
        """The latest resolver, if it was issued for the sandbox's own networks."""
        return self._applied.get(sandbox)

    def set_resolver(self, uid: str, resolver: SubmittedResolver | None) -> bool:
        """Set or withdraw (None) a pod's resolver and write its files; return whether that is a change.

        A resolver without networks is for those of the pod's newest sandbox. Raises `OSError` where a file
        cannot be written, and `ValueError` for a text that is not a resolv.conf.
        """
        if resolver is not None and not resolver.networks:
            resolver = replace(resolver, networks=self._newest_networks(uid))
        is_change = self._latest.get(uid) != resolver
        self._latest.pop(uid, None)
        if resolver is not None:
            self._latest[uid] = resolver
        for sandbox in self.sandboxes(uid):
            if resolver is not None and resolver.applies_to(self._sandboxes[sandbox].networks):
                self._applied[sandbox] = resolver
            else:
                self._applied.pop(sandbox, None)
        for sandbox in self.sandboxes(uid):
            self._write(sandbox)
        self._evict_oldest()
        return is_change

    def _newest_networks(self, uid: str) -> tuple[str, ...]:
        known = [each.networks for each in self._sandboxes.values() if each.uid == uid and each.networks]
        return known[-1] if known else ()

    def _evict_oldest(self) -> None:
        if len(self._latest) <= MAX_RESOLVERS:
            return
        used = {each.uid for each in self._sandboxes.values()}
        unused = [uid for uid in self._latest if uid not in used]
        for uid in unused[: len(self._latest) - MAX_RESOLVERS]:
            del self._latest[uid]

    # ---- sandboxes

    def sandboxes(self, uid: str) -> tuple[str, ...]:
        """The living sandboxes of a pod."""
        return tuple(sandbox for sandbox, each in self._sandboxes.items() if each.uid == uid)

    def add_sandbox(self, sandbox: str, uid: str, networks: tuple[str, ...]) -> None:
        """A sandbox lives, attached to `networks`; idempotent. Raises `OSError`."""
        if not is_sandbox_id(sandbox):
            raise OSError(22, "no id that a directory may have", sandbox)
        before, now = self._sandboxes.get(sandbox), _PodNetworks(uid, networks)
        if before != now:
            if before is not None and before.uid != uid:
                self._applied.pop(sandbox, None)
            self._sandboxes[sandbox] = now
            self._unwritten.add(sandbox)
            self._apply_latest(sandbox, now)
        if sandbox in self._unwritten:
            self._write(sandbox)

    def _apply_latest(self, sandbox: str, pod: _PodNetworks) -> None:
        """Choose the resolver of a sandbox whose networks are known now."""
        applied, latest = self._applied.pop(sandbox, None), self._latest.get(pod.uid)
        if latest is not None and not latest.networks:
            # From an older client: it is for the first sandbox that follows.
            latest = self._latest[pod.uid] = replace(latest, networks=pod.networks)
        if latest is not None and latest.applies_to(pod.networks):
            self._applied[sandbox] = latest
        elif latest is None and applied is not None and not applied.networks:
            # From this sandbox's own record, which an older kata-bridge wrote.
            self._applied[sandbox] = self._latest[pod.uid] = replace(applied, networks=pod.networks)

    def remove_sandbox(self, sandbox: str) -> None:
        """A sandbox is gone: remove its files and all that is known of it."""
        known = self._sandboxes.pop(sandbox, None)
        self._applied.pop(sandbox, None)
        self._allowed.pop(sandbox, None)
        self._blocked.discard(sandbox)
        self._unwritten.discard(sandbox)
        if known is not None:
            shutil.rmtree(self._directory / sandbox, ignore_errors=True)

    def retain(self, sandboxes: Collection[str]) -> None:
        """Remove all other sandboxes, and what an earlier life left of others."""
        for sandbox in [each for each in self._sandboxes if each not in sandboxes]:
            self.remove_sandbox(sandbox)
        for sandbox in self._without_record.difference(sandboxes):
            shutil.rmtree(self._directory / sandbox, ignore_errors=True)
        self._without_record.clear()

    def path(self, sandbox: str) -> Path:
        """The file that containers of the sandbox mount."""
        return self._directory / sandbox / _FILE

    def prepare(self, sandbox: str, uid: str, networks: tuple[str, ...]) -> Path:
        """Write the file for a container that is about to mount it, and return its path. Raises `OSError`."""
        self.add_sandbox(sandbox, uid, networks)
        resolver = self._applied.get(sandbox)
        if resolver is not None and resolver.text:
            self._write_file(sandbox, resolver.text)
        return self.path(sandbox)

    # ---- containers

    def record_allowed(self, sandbox: str, container: str) -> None:
        """Record that the start gate allowed a container. Raises `OSError`."""
        allowed = self._allowed.setdefault(sandbox, [])
        if container not in allowed:
            allowed.append(container)
            del allowed[:-MAX_ALLOWED]
            self._write_record(sandbox)

    def was_allowed(self, sandbox: str, container: str) -> bool:
        """Whether the start gate allowed a container, in this life or an earlier one."""
        return container in self._allowed.get(sandbox, ())

    def set_blocked(self, sandbox: str, *, is_blocked: bool) -> None:
        """Record whether a container of the sandbox waits to be tried again."""
        if is_blocked == (sandbox in self._blocked):
            return
        (self._blocked.add if is_blocked else self._blocked.discard)(sandbox)
        try:
            self._write_record(sandbox)
        except OSError as error:
            # Only a restart reads it. Without it the kubelet tries again by itself, minutes later at worst.
            _log.error("cannot record that a sandbox is blocked", sandbox=sandbox, reason=error)

    def was_blocked(self, sandbox: str) -> bool:
        """Whether a container waits to be tried again, in this life or since an earlier one."""
        return sandbox in self._blocked

    # ---- files

    def _write(self, sandbox: str) -> None:
        resolver = self._applied.get(sandbox)
        if resolver is not None and resolver.text:
            self._write_file(sandbox, resolver.text)
        self._write_record(sandbox)
        self._unwritten.discard(sandbox)

    def _write_file(self, sandbox: str, text: str) -> None:
        with self._opened(sandbox) as descriptor:
            # The container's user must be able to read it, whatever our umask is.
            resolv_conf.write(_FILE, text, dir_fd=descriptor, mode=0o644)

    def _write_record(self, sandbox: str) -> None:
        known = self._sandboxes.get(sandbox)
        if known is None:
            return
        resolver = self._applied.get(sandbox)
        # The keys stay as they are: an older or newer kata-bridge reads what this one wrote.
        record = {
            "uid": known.uid,
            "networks": known.networks,
            _SUBMITTED_KEY: resolver is not None,
            "hasText": bool(resolver is not None and resolver.text),
            "waits": resolver.wait_message if resolver is not None else "",  # why containers wait
            "admitted": self._allowed.get(sandbox, []),  # the containers that were allowed
            "isHeld": sandbox in self._blocked,  # whether a container is blocked
        }
        with self._opened(sandbox) as directory:
            with suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=directory)
            new = os.open(_NEW, os.O_WRONLY | _NEW_FILE, 0o600, dir_fd=directory)
            with os.fdopen(new, "w") as file:
                file.write(json.dumps(record))
            os.rename(_NEW, _RECORD, src_dir_fd=directory, dst_dir_fd=directory)

    @contextmanager
    def _opened(self, sandbox: str) -> Iterator[int]:
        """Its directory, made if it is missing. Raises `OSError`, also where a link is in its place."""
        with suppress(FileExistsError):
            os.mkdir(sandbox, 0o711, dir_fd=self._descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(sandbox, flags, dir_fd=self._descriptor)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, "another user owns the directory", str(self._directory / sandbox)
                )
            yield descriptor
        finally:
            os.close(descriptor)

    def _restore(self) -> None:
        for directory in self._directory.iterdir():
            record = _record(directory / _RECORD)
            uid = record.get("uid")
            if is_sandbox_id(directory.name) and _is_without_record(directory):
                self._without_record.add(directory.name)
                continue
            if not is_sandbox_id(directory.name) or not isinstance(uid, str) or not uid:
                _log.warning(
                    "unknown entry in the directory of resolv.confs, left as it is", name=directory.name
                )
                continue
            known = self._sandboxes[directory.name] = _PodNetworks(uid, _names(record.get("networks")))
            allowed = record.get("admitted")
            if isinstance(allowed, list):
                self._allowed[directory.name] = [each for each in allowed if isinstance(each, str)]
            if record.get("isHeld") is True:
                self._blocked.add(directory.name)
            wait_message = record.get("waits")
            if record.get(_SUBMITTED_KEY) is not True or not isinstance(wait_message, str):
                continue
            text = ""
            if record.get("hasText") is True:
                with suppress(OSError, UnicodeDecodeError):
                    text = _content(directory / _FILE, resolv_conf.MAX_BYTES).decode()
            if not text and not wait_message:
                continue
            applied = self._applied[directory.name] = SubmittedResolver(text, wait_message, known.networks)
            if applied.networks:  # an older kata-bridge recorded none: then it is for this sandbox alone
                self._latest[uid] = applied


def _is_without_record(directory: Path) -> bool:
    """Whether it is a directory of ours that has no record, and nothing that is not ours."""
    try:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        return {each.name for each in directory.iterdir()} <= {_FILE, _NEW}
    except OSError:
        return False


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        return ()
    return tuple(found)


def _content(path: Path, most: int) -> bytes:
    """Raises `OSError`, also for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most)


def _record(path: Path) -> Mapping[str, Any]:
    """A sandbox's record; empty if it cannot be read."""
    try:
        found = json.loads(_content(path, _MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
