# SPDX-License-Identifier: Apache-2.0
"""/etc/vcnode of a node, below any root: who owns what in it, and how it is read and written."""

import os
import pwd
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType

from daemonkit.files.open_directory import OpenDirectory, Owner
from vcnode import input_file
from vcnode.core import init_decision
from vcnode.core.init_decision import FileAction, FileDecision, FileRequest, FoundContent
from vcnode.core.init_plan import CONFIGURATION, PKI, NodeDaemon
from vcnode.core.node_certificates import KeyPair
from vcnode.input_file import MAX_FILE_BYTES
from vcnode.terminal import ToolError

_PROGRAMS = "usr/bin"
# The packages put the same files into /etc/vcnode, for a package manager that knows edits.
_SHIPPED = "usr/share/vcnode/configuration"


class NodeTree:
    """The files of a node; a context manager. Reading changes nothing. All raise OSError and ToolError."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = ExitStack()
        self._opened: dict[tuple[str, bool], OpenDirectory | None] = {}
        self._owners: dict[str, Owner] = {}

    def __enter__(self) -> "NodeTree":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def installed(self) -> tuple[NodeDaemon, ...]:
        """The daemons whose packages are installed."""
        return tuple(each for each in NodeDaemon if (self._root / _PROGRAMS / each.value).exists())

    def shipped(self, daemon: NodeDaemon) -> bytes | None:
        """The configuration that the daemon's package has installed, if it exists."""
        path = self._root / _SHIPPED / f"{daemon.value}.yaml"
        return input_file.read(path) if path.exists() else None

    def read(self, path: str) -> bytes | None:
        """The content of a file, if it exists."""
        place = PurePosixPath(path)
        directory = self._directory(str(place.parent), make=False)
        found = None if directory is None else directory.read(place.name, MAX_FILE_BYTES)
        return None if found is None else found.data

    def pair(self, certificate_path: str, key_path: str) -> KeyPair | None:
        """A certificate with its key, if both exist."""
        certificate, key = self.read(certificate_path), self.read(key_path)
        return None if certificate is None or key is None else KeyPair(certificate, key)

    def decide(self, request: FileRequest, *, force: bool) -> list[FileDecision]:
        """What becomes of a file, and of the one beside it if it has been edited."""
        first = init_decision.decide_file(request, self._found(request, request.path), force=force)
        if first.action is not FileAction.KEEP or not first.reason:
            return [first]
        beside = self._found(request, request.path + init_decision.NEW_SUFFIX)
        return [first, init_decision.decide_new_file(request, beside)]

    def _found(self, request: FileRequest, path: str) -> FoundContent | None:
        place = PurePosixPath(path)
        directory = self._directory(str(place.parent), make=False)
        found = None if directory is None else directory.read(place.name, MAX_FILE_BYTES)
        if found is None:
            return None
        is_as_asked = found.mode == request.mode and found.owner.uid == self._owner(request.owner).uid
        return FoundContent(found.data, is_as_asked)

    def write(self, request: FileRequest, path: str) -> None:
        """Replace the file, with its directories made."""
        place = PurePosixPath(path)
        directory = self.prepare(str(place.parent))
        directory.replace(place.name, request.data, request.mode, self._owner(request.owner))

    def prepare(self, path: str) -> OpenDirectory:
        """A directory, made with the right owner and mode."""
        directory = self._directory(path, make=True)
        if directory is None:
            raise ToolError(f"{path}: cannot be made")
        return directory

    def _directory(self, path: str, *, make: bool) -> OpenDirectory | None:
        key = (path, make)
        if key not in self._opened:
            opened = self._make(path) if make else self._find(path)
            if opened is not None:
                self._stack.enter_context(opened)
            elif not make:
                return None
            self._opened[key] = opened
        return self._opened[key]

    def _make(self, path: str) -> OpenDirectory:
        if path == CONFIGURATION:
            return OpenDirectory.prepare(self._outside(path), 0o755)
        place = PurePosixPath(path)
        user, mode = _owner_and_mode(path)
        return self.prepare(str(place.parent)).child(place.name, self._owner(user), mode)

    def _find(self, path: str) -> OpenDirectory | None:
        if path == CONFIGURATION:
            return OpenDirectory.find(self._outside(path))
        place = PurePosixPath(path)
        parent = self._directory(str(place.parent), make=False)
        return (
            None if parent is None else parent.find_child(place.name, self._owner(_owner_and_mode(path)[0]))
        )

    def _outside(self, path: str) -> Path:
        return self._root / path[1:]

    def _owner(self, name: str) -> Owner:
        """A user of this root, which need not be this host's."""
        if name not in self._owners:
            self._owners[name] = self._look_up(name)
        return self._owners[name]

    def _look_up(self, name: str) -> Owner:
        if name == "root":
            # Images are also built without root.
            return Owner(0, 0) if os.geteuid() == 0 else Owner(os.geteuid(), os.getegid())
        remedy = f"install the package of {name}"
        if self._root == Path("/"):
            try:
                user = pwd.getpwnam(name)
            except KeyError:
                raise ToolError(f"user {name} does not exist: {remedy}") from None
            return Owner(user.pw_uid, user.pw_gid)
        users = self._root / "etc/passwd"
        for line in input_file.read(users).decode("utf-8", "replace").splitlines():
            fields = line.split(":")
            if len(fields) > 3 and fields[0] == name and fields[2].isdigit() and fields[3].isdigit():
                return Owner(int(fields[2]), int(fields[3]))
        raise ToolError(f"{users} has no user {name}: {remedy}")


def _owner_and_mode(path: str) -> tuple[str, int]:
    """A daemon's keys are in a directory of its own."""
    place = PurePosixPath(path)
    if str(place.parent) == PKI:
        return NodeDaemon(place.name).user, 0o700
    return "root", 0o755
