# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenant add|list|show|remove|release`: the directory of tenant files that vn-agent reads."""

import argparse
import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemonkit.files.atomic import write_atomically
from daemonkit.kube import kubeconfig
from tenancy.registry import Bad, Registry, merge
from tenancy.tenant import Role, Tenant
from vcnode import tenant_release
from vcnode.core import certificates, tenant_file, tenant_report
from vcnode.core.certificates import Offer
from vcnode.input_file import read
from vcnode.output import add_output
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError, day_left
from vnagent.sources.files import REMOVED_SUFFIX, SourceError, TenantDirectory

DEFAULT_DIRECTORY = Path("/etc/vcnode/tenants")
# A tenant's file has no secrets, and vn-agent does not run as root.
FILE_MODE = 0o644
# By then each vn-agent has read the removal, or has no saved state of the tenant.
MARKER_LIFE_S = 24 * 3600.0

Found = Mapping[str, Tenant | Bad]


def add_to(verbs: Any) -> None:
    """Add the verb and its verbs to the command line."""
    parser = verbs.add_parser("tenant", help="the tenants in a directory of files", allow_abbrev=False)
    own = parser.add_subparsers(metavar="VERB", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--directory",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="tenants.directory of vn-agent (default: %(default)s)",
    )
    add_output(common)
    add = own.add_parser(
        "add",
        parents=[common],
        help="register a client certificate of a tenant, besides those it has",
        allow_abbrev=False,
    )
    add.add_argument("key", metavar="KEY", help="the tenant's cluster key")
    add.add_argument("--ca", type=Path, metavar="FILE", help="PEM of the authority that issued the client")
    add.add_argument("--client-cert", type=Path, metavar="FILE", help="PEM of the client certificate")
    add.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="take both from this file's current context"
    )
    add.add_argument("--role", choices=[role.value for role in Role], default=Role.APISERVER.value)
    add.add_argument("--cluster-domain", metavar="DOMAIN", help="of the tenant; default cluster.local")
    add.set_defaults(run=run_add, parser=add)
    listing = own.add_parser("list", parents=[common], help="all tenants and bad files", allow_abbrev=False)
    listing.set_defaults(run=run_list)
    show = own.add_parser("show", parents=[common], help="one tenant, or what is wrong", allow_abbrev=False)
    show.add_argument("key", metavar="KEY", help="cluster key, or the name of a file")
    show.set_defaults(run=run_show)
    remove = own.add_parser(
        "remove", parents=[common], help="remove a tenant, or one of its clients", allow_abbrev=False
    )
    remove.add_argument("key", metavar="KEY", help="cluster key")
    remove.add_argument("--client", metavar="SPKI", help="only this client: its hash, or the start of it")
    remove.set_defaults(run=run_remove)
    tenant_release.add_to(own)


def run_add(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Check the certificates and write the whole file, or change nothing."""
    is_pair = arguments.ca is not None and arguments.client_cert is not None
    is_part = arguments.ca is not None or arguments.client_cert is not None
    if is_pair == (arguments.kubeconfig is not None) or is_pair != is_part:
        arguments.parser.error("give --ca and --client-cert, or --kubeconfig")
    if arguments.kubeconfig is not None:
        ca_pem, client_pem = _from_kubeconfig(arguments.kubeconfig)
    else:
        ca_pem, client_pem = read(arguments.ca), read(arguments.client_cert)
    offer = certificates.check(ca_pem, client_pem, terminal.now)
    directory: Path = arguments.directory
    with _editing(directory):
        found = _read_all(directory)
        path, old = _file_of(directory, found, arguments.key)
        tenant = tenant_file.with_client(
            old, arguments.key, offer, Role(arguments.role), arguments.cluster_domain
        )
        _refuse_conflict(found, path.name, tenant)
        notes = _notes(path)
        notes.setdefault(offer.spki, f"{offer.subject}, until {offer.expires:%Y-%m-%d}")
        _write(path, tenant, notes)
        _marker(path).unlink(missing_ok=True)
    for warning in offer.warnings:
        terminal.warn(f"warning: {warning}")
    if terminal.is_document:
        terminal.document("TenantFile", tenant_report.show_document(str(path), tenant, None, notes))
    else:
        terminal.lines(_added(path, old, tenant, offer, terminal))
    return 0


def _added(path: Path, old: Tenant | None, new: Tenant, offer: Offer, terminal: Terminal) -> list[str]:
    if old is not None and offer.spki in old.clients:
        done = f"tenant {new.key}: the client was registered already"
    else:
        done = f"tenant {new.key}: registered in {path} with role {new.clients[offer.spki].value}"
    rows = [("client", offer.subject), ("until", day_left(offer.expires, terminal.now))]
    rows += [("SPKI SHA-256", offer.spki)]
    rest = len(new.clients) - 1
    if rest:
        rows.append(("besides", f"{rest} other client{'s' if rest > 1 else ''} of this tenant"))
    return [done, *tenant_report.indented(rows)]


def run_list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Print all files; exit code 1 if one of them is bad."""
    found = _read_all(arguments.directory)
    problems = tenant_report.problems(found)
    if terminal.is_document:
        terminal.document("TenantFileList", tenant_report.list_document(found, problems))
    elif found:
        terminal.lines(tenant_report.listing(found, problems, terminal.now, terminal.room))
    else:
        terminal.line(f"no tenants: {arguments.directory} has no *.yaml")
    return EXIT_NEGATIVE if problems else 0


def run_show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Print one tenant in full; exit code 1 if its file is bad."""
    found = _read_all(arguments.directory)
    key: str = arguments.key
    names = [name for name, each in found.items() if isinstance(each, Tenant) and each.key == key]
    names = names or [name for name in found if key in (name, name.removesuffix(".yaml"))]
    if not names:
        raise ToolError(f"no tenant {key} in {arguments.directory}")
    name = names[0]
    path: Path = arguments.directory / name
    problem = tenant_report.problems(found).get(name)
    tenant = found[name]
    notes = _notes(path) if isinstance(tenant, Tenant) else {}
    if terminal.is_document:
        terminal.document("TenantFile", tenant_report.show_document(str(path), tenant, problem, notes))
    else:
        terminal.lines(tenant_report.showing(str(path), tenant, problem, notes, terminal.now))
    return EXIT_NEGATIVE if problem else 0


def run_remove(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Remove the tenant's file, or one client from it."""
    directory: Path = arguments.directory
    with _editing(directory):
        path, tenant = _file_of(directory, _read_all(directory), arguments.key)
        if tenant is None:
            raise ToolError(f"no tenant {arguments.key} in {directory}")
        if arguments.client is None:
            spki, clients_left = None, 0
            _remove(path, terminal.now.timestamp())
        else:
            tenant, spki = tenant_file.without_client(tenant, arguments.client)
            clients_left = len(tenant.clients)
            _write(path, tenant, _notes(path))
    if terminal.is_document:
        removed = {"tenant": tenant.key, "file": str(path), "client": spki, "clientsLeft": clients_left}
        terminal.document("TenantRemoval", removed)
    elif spki is None:
        terminal.line(f"tenant {tenant.key}: removed; its live connections end within 5 s")
    else:
        left = clients_left or "none, so no client can connect"
        terminal.line(f"tenant {tenant.key}: client {spki} removed; clients left: {left}")
    return 0


def _remove(path: Path, now_s: float) -> None:
    """Replace a tenant's file by a marker. Raises ToolError.

    Without the marker vn-agent would take the removal of its only tenant for a lost directory, and
    retain the tenant.
    """
    try:
        for old in path.parent.glob(f"*{REMOVED_SUFFIX}"):
            if now_s - old.stat().st_mtime > MARKER_LIFE_S:
                old.unlink()
        path.unlink()
        write_atomically(_marker(path), b"removed by vcnode tenant remove\n", FILE_MODE)
    except OSError as error:
        raise ToolError(f"{error.filename or path}: {error.strerror}") from None


def _marker(path: Path) -> Path:
    return path.with_name(path.name + REMOVED_SUFFIX)


def _from_kubeconfig(path: Path) -> tuple[bytes, bytes]:
    """Authority and client certificate of the current context. Raises ToolError."""
    try:
        access = kubeconfig.load(path)
    except kubeconfig.KubeconfigError as error:
        raise ToolError(f"{path}: {error}") from None
    ca = access.ca_pem or (read(access.ca_file) if access.ca_file else None)
    client = access.certificate_pem or (read(access.certificate_file) if access.certificate_file else None)
    if ca is None:
        raise ToolError(f"{path}: its current context has no certificate-authority")
    if client is None:
        raise ToolError(f"{path}: its current context has no client-certificate")
    return ca, client


def _read_all(directory: Path) -> Found:
    """All files, by vn-agent's own reader, so that both find the same faults."""
    try:
        return dict(sorted(TenantDirectory(directory).read().tenants.items()))
    except SourceError as error:
        raise ToolError(str(error)) from None


def _file_of(directory: Path, found: Found, key: str) -> tuple[Path, Tenant | None]:
    """The file that holds a tenant, or the one that a new tenant gets. Raises ToolError."""
    for name, each in found.items():
        if isinstance(each, Tenant) and each.key == key:
            return directory / name, each
    name = f"{key}.yaml"
    taken = found.get(name)
    if isinstance(taken, Bad):
        raise ToolError(f"{directory / name}: the file is bad ({taken.reason}); repair or remove it first")
    if taken is not None:
        raise ToolError(f"{directory / name}: the file is of tenant {taken.key}")
    return directory / name, None


def _refuse_conflict(found: Found, name: str, tenant: Tenant) -> None:
    """Raise ToolError if vn-agent would refuse the tenant for a conflict with another one."""
    standing, _ = merge(Registry(), found)
    _, problems = merge(standing, {**found, name: tenant})
    for problem in problems:
        if problem.source == name:
            raise ToolError(problem.reason)


def _notes(path: Path) -> dict[str, str]:
    try:
        return tenant_file.notes_of(path.read_text("utf-8", "replace"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None


def _write(path: Path, tenant: Tenant, notes: Mapping[str, str]) -> None:
    try:
        write_atomically(path, tenant_file.render(tenant, notes).encode(), FILE_MODE)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _editing(directory: Path) -> Iterator[None]:
    """Lock the directory against another `vcnode tenant`: each writes whole files."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolError(f"{directory}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ToolError(f"{directory}: another vcnode is editing it; try again") from None
    finally:
        os.close(descriptor)
