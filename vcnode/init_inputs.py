# SPDX-License-Identifier: Apache-2.0
"""What `vcnode init` reads: options, authorities, bundles, and the rights that are shipped."""

import argparse
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from daemonkit.files.open_directory import FoundFile, OpenDirectory
from vcnode import init_authority
from vcnode.core import init_decision, init_plan, node_certificates
from vcnode.core.certificates import subject_text
from vcnode.core.init_decision import Done, FileAction
from vcnode.core.init_plan import SCRAPERS_CA, CertificateSpec, NodeDaemon, NodeSettings, Signer
from vcnode.core.node_certificates import KeyPair
from vcnode.init_authority import Authority
from vcnode.input_file import MAX_FILE_BYTES, read
from vcnode.terminal import Terminal, ToolError

SETTINGS_FILE = "node.json"
SUPER_CA, KUBELET_CA, VN_AGENT_CA = "super-ca.crt", "kubelet-ca.crt", "vn-agent-ca.crt"
# As `vcnode init ca` names it.
_SERVING_CA = "serving-ca.crt"
# From the packages; in a clone packaging/rbac.
_SHIPPED = Path("/usr/share/vcnode/rbac")
_IN_CLONE = Path(__file__).resolve().parents[1] / "packaging" / "rbac"


@dataclass(frozen=True, slots=True)
class Issuers:
    """The authorities at hand, and the file of the one that tenants' apiservers need."""

    by_signer: Mapping[Signer, Authority]
    serving_file: str | None = None

    def certificate(self, signer: Signer) -> x509.Certificate | None:
        authority = self.by_signer.get(signer)
        return None if authority is None else authority.certificate


def write_report(
    done: Sequence[Done],
    steps: Iterable[str],
    terminal: Terminal,
    notes: Sequence[str] = (),
    *,
    is_dry_run: bool = False,
) -> None:
    """What was written, and what is left to do if anything was."""
    left = [] if all(each.action is FileAction.KEEP for each in done) else list(steps)
    if terminal.is_document:
        terminal.document("InitReport", init_decision.as_json(done, left, notes, is_dry_run=is_dry_run))
        return
    terminal.lines((*init_decision.report(done, is_dry_run=is_dry_run), *notes))
    if left:
        terminal.lines(("Next:", *(f"  {each}" for each in left)))


def settings(
    arguments: argparse.Namespace,
    saved: bytes | None,
    *,
    default_name: str | None,
    installed: Sequence[NodeDaemon] = (),
    is_bundle: bool = False,
    default_daemons: Sequence[NodeDaemon] = (),
    has_server: bool = True,
) -> NodeSettings:
    """The node from the options, then a saved file, then defaults. Raises ToolError with all problems.

    `is_bundle`: the file came with certificates, which are for its daemons alone.
    Without `has_server` the super cluster's address need not be given.
    """
    base = init_plan.read_settings(saved) if saved is not None else {}
    node_name: str = arguments.node_name or base.get("node_name") or default_name or ""
    address: str = arguments.address or base.get("address") or ""
    if arguments.daemons is not None:
        try:
            daemons = init_plan.daemons_of(arguments.daemons.split(","))
        except ValueError as error:
            raise ToolError(f"--daemons: unknown daemon {error}") from None
    else:
        named = base.get("daemons", ())
        daemons = tuple(each for each in installed if not is_bundle or each in named)
        daemons = daemons or tuple(named or default_daemons)
    node = NodeSettings(
        node_name,
        address,
        server=arguments.server or base.get("server", ""),
        daemons=daemons,
        names=tuple(arguments.name or base.get("names", ())),
        service_cidrs=tuple(arguments.service_cidr or base.get("service_cidrs", ())),
        resolv_conf=arguments.resolv_conf or base.get("resolv_conf", "/etc/resolv.conf"),
        scrapers=tuple(arguments.scraper or base.get("scrapers", ())),
        virtual_clusters=(
            bool(base.get("virtual_clusters"))
            if arguments.tenants is None
            else arguments.tenants == init_plan.VIRTUAL_CLUSTERS
        ),
    )
    needed = [("--node-name", node_name)]
    if not daemons or node.needs_address:
        needed.append(("--address", address))
    missing = [option for option, value in needed if not value]
    if missing:
        raise ToolError(f"missing: {', '.join(missing)}")
    problems = [each for each in node.problems() if has_server or not each.startswith("--server")]
    if problems:
        raise ToolError("; ".join(problems))
    return node


def issuers(arguments: argparse.Namespace, specs: Sequence[CertificateSpec], terminal: Terminal) -> Issuers:
    """The authorities that the options name, each checked for what it is to issue. Raises ToolError."""
    found: dict[Signer, Authority] = {}
    serving_file = None
    with ExitStack() as stack:
        own = _ca_directory(arguments.ca_directory, stack)
        for signer in sorted({spec.signer for spec in specs}, key=lambda each: each.value):
            option = signer.value.replace("-", "_")
            certificate_file: Path | None = getattr(arguments, f"{option}_ca")
            key_file: Path | None = getattr(arguments, f"{option}_ca_key")
            if signer is Signer.KUBELET_CLIENT and certificate_file is None and key_file is None:
                certificate_file, key_file = arguments.client_ca, arguments.client_ca_key
            if (certificate_file is None) != (key_file is None):
                raise ToolError(f"give --{signer.value}-ca with --{signer.value}-ca-key")
            wanted = [spec for spec in specs if spec.signer is signer]
            if certificate_file is not None and key_file is not None:
                pair = KeyPair(read(certificate_file), _read_key(key_file, terminal))
                where = str(certificate_file)
            elif own is not None:
                # Of the usual ones `vcnode init ca` creates one for all clients.
                stem = "client-ca" if signer is Signer.KUBELET_CLIENT else f"{signer.value}-ca"
                pair = KeyPair(_in(own, f"{stem}.crt").data, _in(own, f"{stem}.key").data)
                where = str(own.path / f"{stem}.crt")
            else:
                continue
            try:
                found[signer] = init_authority.load(pair.certificate_pem, pair.key_pem, wanted, terminal.now)
            except ToolError as error:
                raise ToolError(f"{where}: {error}") from None
            if signer is Signer.SERVING:
                serving_file = where
    _refuse_shared_authority(found)
    return Issuers(found, serving_file)


def _refuse_shared_authority(found: Mapping[Signer, Authority]) -> None:
    """A listener's key must not pass for vn-agent, whose authority tenants' apiservers trust."""
    keys = [
        found[each].certificate.public_key() for each in (Signer.METRICS, Signer.SERVING) if each in found
    ]
    if len(keys) == 2 and keys[0] == keys[1]:
        raise ToolError(
            "--metrics-ca and --serving-ca are one authority: listeners of metrics could pass for vn-agent;"
            " create one for metrics (vcnode init ca DIRECTORY --only metrics)"
        )


def _ca_directory(path: Path | None, stack: ExitStack) -> OpenDirectory | None:
    if path is None:
        return None
    directory = open_directory(path)
    stack.enter_context(directory)
    return directory


def open_directory(path: Path) -> OpenDirectory:
    """A directory of keys, which others can neither write nor replace. Raises ToolError."""
    try:
        directory = OpenDirectory.find(path)
    except OSError as error:
        raise ToolError(str(error)) from None
    if directory is None:
        raise ToolError(f"{path}: no such directory")
    return directory


def _in(directory: OpenDirectory, name: str) -> FoundFile:
    try:
        found = directory.read(name, MAX_FILE_BYTES)
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    if found is None:
        raise ToolError(f"{directory.path / name}: no such file")
    return found


def serving_authority(arguments: argparse.Namespace) -> Path | None:
    """The authority of vn-agents' certificates, which vc-operator trusts; None if no option names one."""
    chosen: Path | None = arguments.serving_ca
    directory: Path | None = arguments.ca_directory
    if chosen is None and directory is not None and (directory / _SERVING_CA).exists():
        return directory / _SERVING_CA
    return chosen


def _read_key(path: Path, terminal: Terminal) -> bytes:
    data = read(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        terminal.warn(f"warning: {path}: users other than its owner may read this key")
    return data


def trusted(path: Path, terminal: Terminal) -> bytes:
    """A file of authorities to trust, as PEM without anything else. Raises ToolError."""
    return authorities_of(read(path), str(path), terminal)


def authorities_of(data: bytes, where: str, terminal: Terminal) -> bytes:
    """The authorities in it, as PEM. Raises ToolError without one, or if all have expired."""
    try:
        found, others = node_certificates.authorities(data)
    except ToolError as error:
        raise ToolError(f"{where}: {error}") from None
    if all(each.not_valid_after_utc <= terminal.now for each in found):
        raise ToolError(f"{where}: it expired on {found[0].not_valid_after_utc:%Y-%m-%d}")
    for each in others:
        terminal.warn(f"{where}: left out {subject_text(each)}, which is no authority")
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Certificates that were issued elsewhere, with what is beside them."""

    pairs: Mapping[str, KeyPair]
    settings: bytes | None
    authorities: Mapping[str, bytes]


def read_bundle(path: Path) -> Bundle:
    """All that a bundle has. Raises ToolError if others can write to it."""
    pairs = {}
    with open_directory(path) as directory:
        try:
            for name in init_plan.certificate_names():
                child = directory.find_child(name, owner=None)
                if child is not None:
                    with child:
                        pairs[name] = KeyPair(_in(child, "tls.crt").data, _in(child, "tls.key").data)
            beside = {
                name: found.data
                for name in (SETTINGS_FILE, SUPER_CA, KUBELET_CA, VN_AGENT_CA, SCRAPERS_CA)
                if (found := directory.read(name, MAX_FILE_BYTES))
            }
        except OSError as error:
            raise ToolError(f"{error.filename}: {error.strerror}") from None
    return Bundle(pairs, beside.pop(SETTINGS_FILE, None), beside)


def pair_in(directory: OpenDirectory | None, certificate: str, key: str) -> KeyPair | None:
    """A certificate with its key, if both are there. Raises OSError."""
    if directory is None:
        return None
    found = [directory.read(name, MAX_FILE_BYTES) for name in (certificate, key)]
    return KeyPair(found[0].data, found[1].data) if found[0] and found[1] else None


def missing_issuers(specs: Iterable[CertificateSpec], known: Issuers) -> None:
    """Raise ToolError if a certificate is to be issued without its authority at hand."""
    options = {spec.signer.value for spec in specs if spec.signer not in known.by_signer}
    if options:
        ways = ", ".join(f"--{each}-ca with --{each}-ca-key" for each in sorted(options))
        raise ToolError(f"certificates have to be issued: give {ways}, or --ca-directory")


def manifests(arguments: argparse.Namespace, node: NodeSettings, terminal: Terminal) -> dict[str, str]:
    """The rights of the node's daemons, by file name. Without the shipped files: none, with a warning."""
    chosen: Path | None = arguments.manifests
    places = (_IN_CLONE, _SHIPPED) if chosen is None else (chosen,)
    directory = next((place for place in places if place.is_dir()), None)
    if directory is None:
        if chosen is not None:
            raise ToolError(f"{chosen}: no such directory")
        terminal.warn(f"warning: {_SHIPPED} is missing: apply packaging/rbac of the release for this node")
        return {}
    return {
        Path(name).name: init_plan.manifest(read(directory / name).decode("utf-8", "replace"), node.node_name)
        for name in node.manifests()
    }
