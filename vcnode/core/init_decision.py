# SPDX-License-Identifier: Apache-2.0
"""What `vcnode init` does with each file and certificate: the plan that --dry-run prints."""

import datetime as dt
import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509

from vcnode.core.init_plan import CertificateSpec, NodeDaemon, is_as_written
from vcnode.core.node_certificates import KeyPair, PairState, PairStatus, pair_status
from vcnode.terminal import ToolError, columns, day_left

KEY_MODE = 0o600
# Certificates and configuration hold no secret, and daemons do not run as root.
FILE_MODE = 0o644
NEW_SUFFIX = ".new"


class FileAction(enum.Enum):
    KEEP = "unchanged"
    CREATE = "created"
    REPLACE = "replaced"


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file that a node is to have. `owner` is a user; an edited file of `is_editable` is not replaced.

    `shipped` is the package's version of it, which has no key. A file that equals it is unedited.
    """

    path: str
    data: bytes = field(repr=False)
    mode: int = FILE_MODE
    owner: str = "root"
    is_editable: bool = False
    shipped: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FoundContent:
    """The file that is there. `is_as_asked`: it has the right owner and mode."""

    data: bytes = field(repr=False)
    is_as_asked: bool = True


@dataclass(frozen=True, slots=True)
class FileDecision:
    """`path` is where to write; `reason` says why, or why not."""

    action: FileAction
    path: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PairDecision:
    """`pair` is what to write: None to issue one, or to keep what is there."""

    action: FileAction
    reason: str = ""
    pair: KeyPair | None = None
    expires: dt.datetime | None = None


def decide_file(request: FileRequest, found: FoundContent | None, *, force: bool) -> FileDecision:
    """Whether the file is written, and where."""
    if found is None:
        return FileDecision(FileAction.CREATE, request.path)
    if found.data == request.data:
        if found.is_as_asked:
            return FileDecision(FileAction.KEEP, request.path)
        return FileDecision(FileAction.REPLACE, request.path, "its owner or mode was different")
    is_unedited = found.data == request.shipped or is_as_written(found.data.decode("utf-8", "replace"))
    if request.is_editable and not is_unedited and not force:
        return FileDecision(FileAction.KEEP, request.path, "it has been edited")
    return FileDecision(FileAction.REPLACE, request.path, "its content was different")


def decide_new_file(request: FileRequest, found_new: FoundContent | None) -> FileDecision:
    """Beside an edited file: whether our version of it is written under the name with `.new`."""
    path = request.path + NEW_SUFFIX
    if found_new is not None and found_new.data == request.data:
        return FileDecision(FileAction.KEEP, path)
    action = FileAction.CREATE if found_new is None else FileAction.REPLACE
    return FileDecision(action, path, "for comparison with the edited file")


def decide_pair(
    found: KeyPair | None,
    given: KeyPair | None,
    spec: CertificateSpec,
    issuer: x509.Certificate | None,
    now: dt.datetime,
    *,
    renew: bool,
) -> PairDecision:
    """Whether the certificate stays, is taken from a bundle (`given`), or is issued.

    A certificate that is valid for something else is replaced only with `renew`. Raises ToolError.
    """
    if given is not None:
        return _decide_given(found, given, spec, now, renew=renew)
    if found is None:
        return PairDecision(FileAction.CREATE)
    there = pair_status(found, spec, issuer, now)
    if there.state is PairState.VALID and not renew:
        return PairDecision(FileAction.KEEP, "", None, there.expires)
    _refuse_different(there, spec, renew=renew)
    return PairDecision(FileAction.REPLACE, there.reason or "--renew")


def _decide_given(
    found: KeyPair | None, given: KeyPair, spec: CertificateSpec, now: dt.datetime, *, renew: bool
) -> PairDecision:
    """The later one of the given and the found certificate stays."""
    offered = pair_status(given, spec, None, now)
    if offered.expires is None or offered.state is PairState.DIFFERENT or offered.expires <= now:
        raise ToolError(f"{spec.name}: {offered.reason}")
    if found is None:
        return PairDecision(FileAction.CREATE, "", given, offered.expires)
    if found == given:
        return PairDecision(FileAction.KEEP, "", None, offered.expires)
    there = pair_status(found, spec, None, now)
    is_later = there.expires is None or offered.expires > there.expires
    if there.state is not PairState.DIFFERENT and not is_later and not renew:
        return PairDecision(FileAction.KEEP, "a given one expires no later", None, there.expires)
    _refuse_different(there, spec, renew=renew)
    return PairDecision(FileAction.REPLACE, there.reason or "a later one was given", given, offered.expires)


def _refuse_different(there: PairStatus, spec: CertificateSpec, *, renew: bool) -> None:
    if there.state is PairState.DIFFERENT and not renew:
        raise ToolError(f"{spec.certificate_path}: {there.reason}; replace it with --renew, or move it away")


@dataclass(frozen=True, slots=True)
class Done:
    """One line of the report: a path, what happened to it, and why."""

    path: str
    action: FileAction
    note: str = ""


def report(done: Sequence[Done], *, is_dry_run: bool) -> list[str]:
    """What was, or would be, written; what is unchanged is only counted, unless a note says why."""
    shown = [each for each in done if each.action is not FileAction.KEEP or each.note]
    lines = columns((each.action.value, each.path, each.note) for each in shown)
    written = sum(each.action is not FileAction.KEEP for each in done)
    kept = len(done) - written
    if not written:
        return [*lines, f"nothing to do: {kept} files are as they should be"]
    verb = "would be written (--dry-run)" if is_dry_run else "written"
    return [*lines, f"files {verb}: {written}, unchanged: {kept}"]


def as_json(
    done: Sequence[Done], steps: Iterable[str], notes: Iterable[str] = (), *, is_dry_run: bool
) -> dict[str, Any]:
    """The report for programs: each file, and what is left to do."""
    rows = [{"path": each.path, "action": each.action.value, "reason": each.note} for each in done]
    return {"isDryRun": is_dry_run, "files": rows, "notes": list(notes), "nextSteps": list(steps)}


def until(expires: dt.datetime | None, now: dt.datetime) -> str:
    """The end of a certificate, for the report."""
    return "" if expires is None else f"until {day_left(expires, now)}"


def next_steps(
    daemons: Sequence[NodeDaemon],
    *,
    rights: str,
    serving_authority: str | None,
    has_init_system: bool,
    virtual_clusters: bool = False,
) -> Iterator[str]:
    """What is left to do after the files are written."""
    if rights:
        yield f"kubectl apply -f {rights}   (as an administrator of the super cluster)"
    if has_init_system:
        yield f"systemctl enable --now {' '.join(daemon.value for daemon in daemons)}"
        yield "vcnode doctor"
    # vc-operator does it for tenants that are VirtualClusters.
    if NodeDaemon.VN_AGENT in daemons and not virtual_clusters:
        authority = serving_authority or "FILE, the authority of vn-agent's certificate"
        yield f"each tenant's kube-apiserver: --kubelet-certificate-authority={authority}"
        yield "vcnode tenant add KEY --ca FILE --client-cert FILE   (each tenant)"
