# SPDX-License-Identifier: Apache-2.0
"""`vcnode init ca`: authorities of the operator's own, in a directory that belongs on no node."""

import argparse
from dataclasses import dataclass
from datetime import timedelta

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from daemonkit.files.open_directory import OpenDirectory
from vcnode import init_authority, init_inputs
from vcnode.core import init_decision, node_certificates
from vcnode.core.init_decision import FILE_MODE, KEY_MODE, Done, FileAction
from vcnode.input_file import MAX_FILE_BYTES
from vcnode.terminal import Terminal, ToolError, columns


@dataclass(frozen=True, slots=True)
class _AuthorityKind:
    """An authority to create. Those that are no default are created only if they are named."""

    subject: str
    usages: tuple[x509.ObjectIdentifier, ...]
    is_default: bool = True


# By the stem of their files.
_KINDS = {
    "client-ca": _AuthorityKind("vcnode client authority", (ExtendedKeyUsageOID.CLIENT_AUTH,)),
    "serving-ca": _AuthorityKind("vcnode serving authority", (ExtendedKeyUsageOID.SERVER_AUTH,)),
    "metrics-ca": _AuthorityKind(
        "vcnode metrics authority",
        (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH),
        is_default=False,
    ),
}
_STEPS = ("vcnode init bundle", "vcnode init node")


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Create the authorities that are not there."""
    default = [stem for stem, kind in _KINDS.items() if kind.is_default]
    stems = [f"{arguments.only}-ca"] if arguments.only else default
    done: list[Done] = []
    try:
        with OpenDirectory.prepare(arguments.directory, 0o700) as directory:
            for stem in stems:
                names = (f"{stem}.crt", f"{stem}.key")
                pair = init_inputs.pair_in(directory, *names)
                action = FileAction.KEEP
                if pair is None:
                    # Half a pair may be all that is left of an authority which nodes trust.
                    for name in names:
                        if directory.read(name, MAX_FILE_BYTES) is not None:
                            raise ToolError(f"{directory.path / name} is there without its other half")
                    life = timedelta(days=arguments.days)
                    kind = _KINDS[stem]
                    pair = init_authority.create(kind.subject, kind.usages, life=life, now=terminal.now)
                    directory.replace(names[1], pair.key_pem, KEY_MODE)
                    directory.replace(names[0], pair.certificate_pem, FILE_MODE)
                    action = FileAction.CREATE
                try:
                    init_authority.load(pair.certificate_pem, pair.key_pem, (), terminal.now)
                except ToolError as error:
                    raise ToolError(f"{directory.path / names[0]}: {error}") from None
                expires = node_certificates.certificates(pair.certificate_pem)[0].not_valid_after_utc
                note = init_decision.until(expires, terminal.now)
                done.append(Done(str(directory.path / names[0]), action, note))
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    if terminal.is_document:
        terminal.document("InitReport", init_decision.as_json(done, _STEPS, is_dry_run=False))
    else:
        terminal.lines(columns((each.action.value, each.path, each.note) for each in done))
        terminal.line(f"Keep the keys off the nodes. Next: {', or '.join(_STEPS)}")
    return 0
