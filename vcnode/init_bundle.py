# SPDX-License-Identifier: Apache-2.0
"""`vcnode init bundle` issues a node's certificates elsewhere, `init certificates` is for cert-manager."""

import argparse
import datetime as dt
import os
import shlex
from collections.abc import Iterator

from cryptography.hazmat.primitives.serialization import Encoding

from daemonkit.files.open_directory import OpenDirectory, Owner
from vcnode import init_inputs
from vcnode.core import init_cert_manager, init_decision, init_plan, node_certificates
from vcnode.core.init_decision import KEY_MODE, Done, FileAction, FileRequest, FoundContent
from vcnode.core.init_plan import SCRAPERS_CA, CertificateSpec, NodeDaemon, NodeSettings, Signer
from vcnode.init_authority import Authority
from vcnode.init_inputs import KUBELET_CA, SETTINGS_FILE, SUPER_CA, VN_AGENT_CA
from vcnode.input_file import MAX_FILE_BYTES
from vcnode.terminal import Terminal, ToolError

# vc-syncer and vc-operator run in the super cluster unless they are asked for.
_NODE_DAEMONS = (NodeDaemon.VN_AGENT, NodeDaemon.KATA_BRIDGE, NodeDaemon.KUBEPROXY_EXT, NodeDaemon.DNSCONFIG)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Issue what the directory lacks, and write the rest beside it."""
    try:
        with OpenDirectory.prepare(arguments.out, 0o700) as directory:
            done = _run(arguments, terminal, directory)
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    steps = (
        f"kubectl apply -f {arguments.out}/rbac   (as an administrator of the super cluster)",
        f"copy {arguments.out} to the node as root, mode 0700",
        "vcnode init node --bundle DIR, and remove DIR   (on the node)",
    )
    init_inputs.write_report(done, steps, terminal)
    return 0


def _run(arguments: argparse.Namespace, terminal: Terminal, directory: OpenDirectory) -> list[Done]:
    saved = directory.read(SETTINGS_FILE, MAX_FILE_BYTES)
    node = init_inputs.settings(
        arguments, saved.data if saved else None, default_name=None, default_daemons=_NODE_DAEMONS
    )
    known = init_inputs.issuers(arguments, node.certificates(), terminal)
    init_inputs.missing_issuers(node.certificates(), known)
    rights = init_inputs.manifests(arguments, node, terminal)
    is_operator = NodeDaemon.VC_OPERATOR in node.daemons
    done: list[Done] = []
    for spec in node.certificates():
        with directory.child(spec.name, _current_owner(), 0o700) as below:
            done += _issue(spec, known.by_signer[spec.signer], arguments, below, terminal)
    for name, chosen in (
        (SUPER_CA, arguments.super_ca),
        (KUBELET_CA, arguments.kubelet_ca),
        *([(VN_AGENT_CA, init_inputs.serving_authority(arguments))] if is_operator else []),
        (SCRAPERS_CA, arguments.scraper_ca),
    ):
        if chosen is not None:
            done += _place(FileRequest(name, init_inputs.trusted(chosen, terminal)), directory)
    scrapers = known.certificate(Signer.METRICS)
    # What was chosen before stays.
    if scrapers is not None and directory.read(SCRAPERS_CA, MAX_FILE_BYTES) is None:
        done += _place(FileRequest(SCRAPERS_CA, scrapers.public_bytes(Encoding.PEM)), directory)
    done += _place(FileRequest(SETTINGS_FILE, init_plan.settings_json(node)), directory)
    if rights:
        with directory.child("rbac", _current_owner(), 0o755) as below:
            for name, text in rights.items():
                done += _place(FileRequest(name, text.encode()), below)
    return done


def _issue(
    spec: CertificateSpec,
    authority: Authority,
    arguments: argparse.Namespace,
    directory: OpenDirectory,
    terminal: Terminal,
) -> Iterator[Done]:
    found = init_inputs.pair_in(directory, "tls.crt", "tls.key")
    decision = init_decision.decide_pair(
        found, None, spec, authority.certificate, terminal.now, renew=arguments.renew
    )
    if found is None or decision.action is not FileAction.KEEP:
        found = authority.issue(spec, dt.timedelta(days=arguments.days), terminal.now)
    expires = node_certificates.certificates(found.certificate_pem)[0].not_valid_after_utc
    for request in (
        FileRequest("tls.key", found.key_pem, KEY_MODE),
        FileRequest("tls.crt", found.certificate_pem),
        FileRequest("ca.crt", authority.certificate.public_bytes(Encoding.PEM)),
    ):
        for each in _place(request, directory):
            is_noted = each.action is not FileAction.KEEP and request.path == "tls.crt"
            note = init_decision.until(expires, terminal.now) if is_noted else ""
            yield Done(each.path, each.action, note)


def _place(request: FileRequest, directory: OpenDirectory) -> Iterator[Done]:
    found = directory.read(request.path, MAX_FILE_BYTES)
    content = None if found is None else FoundContent(found.data, found.mode == request.mode)
    decision = init_decision.decide_file(request, content, force=True)
    if decision.action is not FileAction.KEEP:
        directory.replace(request.path, request.data, request.mode)
    yield Done(str(directory.path / request.path), decision.action)


def _current_owner() -> Owner:
    return Owner(os.geteuid(), os.getegid())


def run_scraper(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Issue the client certificate of a scraper."""
    if not init_plan.is_scraper(arguments.name):
        raise ToolError(f"NAME: expected at most 64 printable characters, got {arguments.name!r}")
    spec = init_plan.scraper(arguments.name)
    known = init_inputs.issuers(arguments, [spec], terminal)
    init_inputs.missing_issuers([spec], known)
    authority = known.by_signer[spec.signer]
    try:
        # A directory that is there may be the scraper's own: its mode stays, and what it trusts.
        with OpenDirectory.find(arguments.out) or OpenDirectory.prepare(arguments.out, 0o700) as directory:
            trusted = directory.read("ca.crt", MAX_FILE_BYTES)
            own = authority.certificate.public_bytes(Encoding.PEM)
            if trusted is not None and trusted.data != own and not arguments.renew:
                raise ToolError(
                    f"{directory.path / 'ca.crt'} is of another authority: give another --out, or --renew"
                )
            done = list(_issue(spec, authority, arguments, directory, terminal))
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    steps = (
        f"vcnode init bundle, or init node, with --scraper {shlex.quote(arguments.name)}   (each node)",
        "the scraper's tls_config: ca_file ca.crt, cert_file tls.crt, key_file tls.key",
    )
    init_inputs.write_report(done, steps, terminal)
    return 0


def run_certificates(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Print cert-manager's objects."""
    node = init_inputs.settings(
        arguments, None, default_name=None, default_daemons=_NODE_DAEMONS, has_server=False
    )
    names = {
        Signer.CLIENT: arguments.client_issuer,
        Signer.KUBELET_CLIENT: arguments.kubelet_client_issuer or arguments.client_issuer,
        Signer.SERVING: arguments.serving_issuer,
        Signer.METRICS: arguments.metrics_issuer,
    }
    missing = [f"--{signer.value}-issuer" for signer in _ordered(node) if not names[signer]]
    if missing:
        raise ToolError(f"missing: {', '.join(missing)}")
    lines = list(init_cert_manager.documents(node, names, arguments.issuer_kind, arguments.namespace))
    if terminal.is_document:
        import yaml  # not loaded for lines

        terminal.document("CertificateList", {"items": list(yaml.safe_load_all("\n".join(lines)))})
    else:
        terminal.lines(lines)
    return 0


def _ordered(node: NodeSettings) -> list[Signer]:
    return [signer for signer in Signer if signer in node.signers()]
