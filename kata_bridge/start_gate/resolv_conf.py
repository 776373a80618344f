# SPDX-License-Identifier: Apache-2.0
"""The resolv.conf of each pod: what was said of it, and the file that its containers have mounted.

One directory for each sandbox, for as long as it lives: `resolv.conf`, which containers mount and
which is therefore rewritten in place and never replaced, and `gate.json`, our own note of whose it
is. Both are read again after a restart: what was said before counts until something else is said.

What is said is for networks, and a pod's next sandbox may be attached to others than its last: a
sandbox is given only what was said for its own. While the latest is for others it is given nothing:
nobody looks after what was said before, whose server may have gone. What runs keeps its file.
"""

import errno
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daemonkit import logs
from daemonkit.files import directories
from guest_agent import resolv_conf
from kata_bridge.sandboxes.core.sandbox import is_sandbox_id
from kata_bridge.start_gate.core.decision import Resolver

# Of pods that have no sandbox (yet). Who says something of a pod withdraws it when the pod is gone.
MAX_SAID = 10_000
# Of one sandbox, the latest; more than a pod has at once, and a crashing one makes new ones for ever.
MAX_ADMITTED = 64
_MAX_NOTE_BYTES = 64 << 10

_FILE, _NOTE, _NEW = "resolv.conf", "gate.json", "gate.new"
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """A sandbox: whose it is, and what it is attached to; none while that is not known (since a restart)."""

    uid: str
    networks: tuple[str, ...]


class ResolvConfs:
    """What was said of pods, by UID, and the files of sandboxes in `directory`."""

    def __init__(self, directory: Path) -> None:
        """Make the directory. Raises `UnusableDirectoryError`."""
        self._directory = directory
        self._said: dict[str, Resolver] = {}
        self._places: dict[str, _Place] = {}
        # By sandbox: what was said last, if it is for its networks.
        self._given: dict[str, Resolver] = {}
        self._admitted: dict[str, list[str]] = {}
        # Sandboxes with a container that was refused and is to be tried again when the gate opens.
        self._held: set[str] = set()
        # Sandboxes whose directory or note could not be written: a disk that was full when they began.
        self._unwritten: set[str] = set()
        # Whoever may write it, or what is above it, could have root write what a link leads to.
        self._descriptor = directories.open_prepared(directory, 0o711)
        self._restore()

    # ---- what is said

    def said(self, uid: str) -> Resolver | None:
        """What was said last of a pod, for whichever networks; None while nobody has."""
        return self._said.get(uid)

    def given(self, sandbox: str) -> Resolver | None:
        """What was said last, if it is for a sandbox's own networks."""
        return self._given.get(sandbox)

    def say(self, uid: str, resolver: Resolver | None) -> bool:
        """Take in what is said of a pod now, and write its files; return whether that is news.

        One without networks is for those of the pod's newest sandbox. Raises `OSError` where a file
        cannot be written, and `ValueError` for what is no resolv.conf.
        """
        if resolver is not None and not resolver.networks:
            resolver = replace(resolver, networks=self._newest_networks(uid))
        is_news = self._said.get(uid) != resolver
        self._said.pop(uid, None)
        if resolver is not None:
            self._said[uid] = resolver
        for sandbox in self.sandboxes(uid):
            if resolver is not None and resolver.is_for(self._places[sandbox].networks):
                self._given[sandbox] = resolver
            else:
                self._given.pop(sandbox, None)
        for sandbox in self.sandboxes(uid):
            self._write(sandbox)
        self._forget_oldest()
        return is_news

    def _newest_networks(self, uid: str) -> tuple[str, ...]:
        known = [place.networks for place in self._places.values() if place.uid == uid and place.networks]
        return known[-1] if known else ()

    def _forget_oldest(self) -> None:
        if len(self._said) <= MAX_SAID:
            return
        used = {place.uid for place in self._places.values()}
        unused = [uid for uid in self._said if uid not in used]
        for uid in unused[: len(self._said) - MAX_SAID]:
            del self._said[uid]

    # ---- sandboxes

    def sandboxes(self, uid: str) -> tuple[str, ...]:
        """The sandboxes of a pod that are there."""
        return tuple(sandbox for sandbox, place in self._places.items() if place.uid == uid)

    def begin(self, sandbox: str, uid: str, networks: tuple[str, ...]) -> None:
        """A sandbox is there, attached to `networks`. Raises `OSError`."""
        if not is_sandbox_id(sandbox):
            raise OSError(22, "no id that a directory may have", sandbox)
        before, place = self._places.get(sandbox), _Place(uid, networks)
        if before != place:
            if before is not None and before.uid != uid:
                self._given.pop(sandbox, None)
            self._places[sandbox] = place
            self._unwritten.add(sandbox)
            self._settle(sandbox, place)
        if sandbox in self._unwritten:
            self._write(sandbox)

    def _settle(self, sandbox: str, place: _Place) -> None:
        """Find what of all that was said is for a sandbox whose networks are known now."""
        given, said = self._given.pop(sandbox, None), self._said.get(place.uid)
        if said is not None and not said.networks:
            # An older client's, and this is the first sandbox since.
            said = self._said[place.uid] = replace(said, networks=place.networks)
        if said is not None and said.is_for(place.networks):
            self._given[sandbox] = said
        elif said is None and given is not None and not given.networks:
            # Of this very sandbox's note, which an older bridge wrote.
            self._given[sandbox] = self._said[place.uid] = replace(given, networks=place.networks)

    def end(self, sandbox: str) -> None:
        """A sandbox is gone, and nothing of it stays."""
        place = self._places.pop(sandbox, None)
        self._given.pop(sandbox, None)
        self._admitted.pop(sandbox, None)
        self._held.discard(sandbox)
        self._unwritten.discard(sandbox)
        if place is not None:
            shutil.rmtree(self._directory / sandbox, ignore_errors=True)

    def retain(self, sandboxes: Collection[str]) -> None:
        """All others are gone."""
        for sandbox in [each for each in self._places if each not in sandboxes]:
            self.end(sandbox)

    def path(self, sandbox: str) -> Path:
        """Of the file that containers of the sandbox mount."""
        return self._directory / sandbox / _FILE

    def ready(self, sandbox: str, uid: str, networks: tuple[str, ...]) -> Path:
        """The file, with what was said in it: for a container that is about to mount it.

        Raises `OSError`.
        """
        self.begin(sandbox, uid, networks)
        resolver = self._given.get(sandbox)
        if resolver is not None and resolver.text:
            self._write_file(sandbox, resolver.text)
        return self.path(sandbox)

    # ---- containers

    def admit(self, sandbox: str, container: str) -> None:
        """Note that a container passed the gate. Raises `OSError`."""
        admitted = self._admitted.setdefault(sandbox, [])
        if container not in admitted:
            admitted.append(container)
            del admitted[:-MAX_ADMITTED]
            self._write_note(sandbox)

    def was_admitted(self, sandbox: str, container: str) -> bool:
        """Whether a container has passed the gate, in this life or an earlier one."""
        return container in self._admitted.get(sandbox, ())

    def hold(self, sandbox: str, *, is_held: bool) -> None:
        """Note whether a container waits to be tried again."""
        if is_held == (sandbox in self._held):
            return
        (self._held.add if is_held else self._held.discard)(sandbox)
        try:
            self._write_note(sandbox)
        except OSError as error:
            # Only a restart would look: the kubelet then tries it again by itself, minutes later at worst.
            _log.error("who waits at the gate cannot be noted", sandbox=sandbox, reason=error)

    def was_held(self, sandbox: str) -> bool:
        """Whether a container waits to be tried again, in this life or since an earlier one."""
        return sandbox in self._held

    # ---- files

    def _write(self, sandbox: str) -> None:
        resolver = self._given.get(sandbox)
        if resolver is not None and resolver.text:
            self._write_file(sandbox, resolver.text)
        self._write_note(sandbox)
        self._unwritten.discard(sandbox)

    def _write_file(self, sandbox: str, text: str) -> None:
        with self._opened(sandbox) as descriptor:
            # Whoever the container runs as reads it, whatever our umask is.
            resolv_conf.write(_FILE, text, dir_fd=descriptor, mode=0o644)

    def _write_note(self, sandbox: str) -> None:
        place = self._places.get(sandbox)
        if place is None:
            return
        resolver = self._given.get(sandbox)
        note = {
            "uid": place.uid,
            "networks": place.networks,
            "isSaid": resolver is not None,
            "hasText": bool(resolver is not None and resolver.text),
            "waits": resolver.waits if resolver is not None else "",
            "admitted": self._admitted.get(sandbox, []),
            "isHeld": sandbox in self._held,
        }
        with self._opened(sandbox) as directory:
            with suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=directory)
            new = os.open(_NEW, os.O_WRONLY | _NEW_FILE, 0o600, dir_fd=directory)
            with os.fdopen(new, "w") as file:
                file.write(json.dumps(note))
            os.rename(_NEW, _NOTE, src_dir_fd=directory, dst_dir_fd=directory)

    @contextmanager
    def _opened(self, sandbox: str) -> Iterator[int]:
        """Its directory, made if it is not there. Raises `OSError`, also where a link is in its place."""
        with suppress(FileExistsError):
            os.mkdir(sandbox, 0o711, dir_fd=self._descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(sandbox, flags, dir_fd=self._descriptor)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, "the directory is another's", str(self._directory / sandbox)
                )
            yield descriptor
        finally:
            os.close(descriptor)

    def _restore(self) -> None:
        for directory in self._directory.iterdir():
            note = _note(directory / _NOTE)
            uid = note.get("uid")
            if not is_sandbox_id(directory.name) or not isinstance(uid, str) or not uid:
                _log.warning("what is not ours in the directory of resolv.confs stays", name=directory.name)
                continue
            place = self._places[directory.name] = _Place(uid, _names(note.get("networks")))
            admitted = note.get("admitted")
            if isinstance(admitted, list):
                self._admitted[directory.name] = [each for each in admitted if isinstance(each, str)]
            if note.get("isHeld") is True:
                self._held.add(directory.name)
            waits = note.get("waits")
            if note.get("isSaid") is not True or not isinstance(waits, str):
                continue
            text = ""
            if note.get("hasText") is True:
                with suppress(OSError, UnicodeDecodeError):
                    text = _content(directory / _FILE, resolv_conf.MAX_BYTES).decode()
            if not text and not waits:
                continue
            given = self._given[directory.name] = Resolver(text, waits, place.networks)
            if given.networks:  # an older bridge noted none: good for this sandbox, and for no other
                self._said[uid] = given


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        return ()
    return tuple(found)


def _content(path: Path, most: int) -> bytes:
    """Raises `OSError`, also for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most)


def _note(path: Path) -> Mapping[str, Any]:
    """What a note says; nothing, if it cannot be read."""
    try:
        found = json.loads(_content(path, _MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
