# SPDX-License-Identifier: Apache-2.0
"""`vcnode init node`: plans the files of this node's daemons, then writes those that are not as planned."""

import argparse
import datetime as dt
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from daemonkit.config import commented
from vcnode import init_inputs
from vcnode.core import init_decision, init_plan, node_certificates
from vcnode.core.init_decision import KEY_MODE, Done, FileAction, FileRequest, PairDecision, decide_pair
from vcnode.core.init_plan import (
    CONFIGURATION,
    PKI,
    SCRAPERS_CA,
    CertificateSpec,
    NodeDaemon,
    NodeSettings,
    Signer,
)
from vcnode.core.node_certificates import KeyPair
from vcnode.init_inputs import KUBELET_CA, SETTINGS_FILE, SUPER_CA, VN_AGENT_CA, Bundle, Issuers
from vcnode.init_tree import NodeTree
from vcnode.terminal import Terminal, ToolError

RIGHTS = f"{CONFIGURATION}/rbac"
TENANTS = f"{CONFIGURATION}/tenants"
_KEYS_NOTE = "Keys of authorities were read here. None belongs on a node: remove them from it."


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """A certificate, what is there of it, and what becomes of it."""

    spec: CertificateSpec
    found: KeyPair | None
    decision: PairDecision


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Write all files of the node, or none if one of them cannot be decided."""
    bundle = init_inputs.read_bundle(arguments.bundle) if arguments.bundle else Bundle({}, None, {})
    root = arguments.root.absolute()
    try:
        with NodeTree(root) as tree:
            done, steps = _run(arguments, terminal, tree, bundle, is_here=root == Path("/"))
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    has_keys = arguments.ca_directory or any(
        getattr(arguments, f"{signer.value.replace('-', '_')}_ca_key") for signer in Signer
    )
    notes = [_KEYS_NOTE] if has_keys else []
    init_inputs.write_report(done, steps, terminal, notes, is_dry_run=arguments.dry_run)
    return 0


def _run(
    arguments: argparse.Namespace, terminal: Terminal, tree: NodeTree, bundle: Bundle, *, is_here: bool
) -> tuple[list[Done], list[str]]:
    node = init_inputs.settings(
        arguments,
        bundle.settings or tree.read(f"{CONFIGURATION}/{SETTINGS_FILE}"),
        default_name=platform.node().lower() if is_here else None,
        installed=tree.installed(),
        is_bundle=bundle.settings is not None,
    )
    known = init_inputs.issuers(arguments, node.certificates(), terminal)
    pairs = list(_plan_pairs(node, tree, bundle, known, terminal.now, renew=arguments.renew))
    init_inputs.missing_issuers(
        (
            each.spec
            for each in pairs
            if each.decision.action is not FileAction.KEEP and not each.decision.pair
        ),
        known,
    )
    rights = init_inputs.manifests(arguments, node, terminal)
    requests = [
        *_authorities(arguments, node, tree, bundle, known, terminal),
        *_configurations(node, tree),
        *(FileRequest(f"{RIGHTS}/{name}", text.encode()) for name, text in rights.items()),
    ]
    if not arguments.dry_run:
        tree.prepare(TENANTS)
    life = dt.timedelta(days=arguments.days)
    done: list[Done] = []
    for planned in pairs:
        done += _finish_pair(planned, tree, known, life, terminal, is_dry_run=arguments.dry_run)
    for request in requests:
        done += _finish(request, tree, force=arguments.force, is_dry_run=arguments.dry_run)
    steps = init_decision.next_steps(
        node.daemons,
        rights=RIGHTS if rights else "",
        serving_authority=known.serving_file,
        has_init_system=is_here,
        virtual_clusters=node.virtual_clusters,
    )
    return done, list(steps)


def _plan_pairs(
    node: NodeSettings, tree: NodeTree, bundle: Bundle, known: Issuers, now: dt.datetime, *, renew: bool
) -> Iterator[PlannedPair]:
    """Raises ToolError with all certificates that cannot be decided."""
    problems = []
    for spec in node.certificates():
        found = tree.pair(spec.certificate_path, spec.key_path)
        given = bundle.pairs.get(spec.name)
        try:
            decision = decide_pair(found, given, spec, known.certificate(spec.signer), now, renew=renew)
        except ToolError as error:
            problems.append(str(error))
            continue
        yield PlannedPair(spec, found, decision)
    if problems:
        raise ToolError("; ".join(problems))


def _finish_pair(
    planned: PlannedPair,
    tree: NodeTree,
    known: Issuers,
    life: dt.timedelta,
    terminal: Terminal,
    *,
    is_dry_run: bool,
) -> Iterator[Done]:
    spec, decision = planned.spec, planned.decision
    pair = planned.found if decision.action is FileAction.KEEP else decision.pair
    if pair is None and not is_dry_run:
        pair = known.by_signer[spec.signer].issue(spec, life, terminal.now)
    if pair is None:
        yield Done(spec.key_path, decision.action, decision.reason)
        yield Done(spec.certificate_path, decision.action, decision.reason)
        return
    expires = node_certificates.certificates(pair.certificate_pem)[0].not_valid_after_utc
    note = init_decision.until(expires, terminal.now)
    if decision.reason:
        note = f"{decision.reason}; {note}"
    # The key first: a daemon that reads between both keeps what it has, as they do not match.
    user = spec.user
    for request in (
        FileRequest(spec.key_path, pair.key_pem, KEY_MODE, user),
        FileRequest(spec.certificate_path, pair.certificate_pem, owner=user),
    ):
        for each in _finish(request, tree, force=True, is_dry_run=is_dry_run):
            is_noted = each.path == spec.certificate_path and each.action is not FileAction.KEEP
            yield Done(each.path, each.action, note if is_noted else each.note)


def _finish(request: FileRequest, tree: NodeTree, *, force: bool, is_dry_run: bool) -> Iterator[Done]:
    for decision in tree.decide(request, force=force):
        if decision.action is not FileAction.KEEP and not is_dry_run:
            tree.write(request, decision.path)
        yield Done(decision.path, decision.action, decision.reason)


def _authorities(
    arguments: argparse.Namespace,
    node: NodeSettings,
    tree: NodeTree,
    bundle: Bundle,
    known: Issuers,
    terminal: Terminal,
) -> Iterator[FileRequest]:
    """The authorities that the daemons trust: given, in the bundle, there already, or at hand."""
    needed = []
    if node.needs_server:
        needed.append((SUPER_CA, arguments.super_ca, "--super-ca"))
    if NodeDaemon.VN_AGENT in node.daemons:
        needed.append((KUBELET_CA, arguments.kubelet_ca, "--kubelet-ca"))
    if NodeDaemon.VC_OPERATOR in node.daemons:
        needed.append((VN_AGENT_CA, init_inputs.serving_authority(arguments), "--serving-ca"))
    if node.scrapers:
        needed.append((SCRAPERS_CA, arguments.scraper_ca, "--scraper-ca"))
    for name, chosen, option in needed:
        path = f"{PKI}/{name}"
        if chosen is not None:
            data = init_inputs.trusted(chosen, terminal)
        elif (bundled := bundle.authorities.get(name)) is not None:
            data = init_inputs.authorities_of(bundled, f"{arguments.bundle}/{name}", terminal)
        elif (there := tree.read(path)) is not None:
            data = there
        elif name == SCRAPERS_CA and (issuer := known.certificate(Signer.METRICS)) is not None:
            data = issuer.public_bytes(Encoding.PEM)
        else:
            raise ToolError(f"missing: {option}")
        yield FileRequest(path, data)


def _configurations(node: NodeSettings, tree: NodeTree) -> Iterator[FileRequest]:
    yield FileRequest(f"{CONFIGURATION}/{SETTINGS_FILE}", init_plan.settings_json(node))
    for daemon in node.daemons:
        cls, kind = _configuration_class(daemon)
        text = commented.render(cls, kind, init_plan.configuration(daemon, node))
        path = f"{CONFIGURATION}/{daemon.value}"
        data = init_plan.marked(text).encode()
        yield FileRequest(f"{path}.yaml", data, is_editable=True, shipped=tree.shipped(daemon))
        if node.has_kubeconfig(daemon):
            access = init_plan.marked(init_plan.kubeconfig(daemon, node))
            yield FileRequest(f"{path}.kubeconfig", access.encode(), is_editable=True)


def _configuration_class(daemon: NodeDaemon) -> tuple[Any, str]:
    """The class that reads the daemon's file. A node need not have the code of all daemons."""
    try:
        if daemon is NodeDaemon.VN_AGENT:
            from vnagent.config import KIND, VnAgentConfiguration

            return VnAgentConfiguration, KIND
        if daemon is NodeDaemon.KATA_BRIDGE:
            from kata_bridge.config import KIND, KataBridgeConfiguration

            return KataBridgeConfiguration, KIND
        if daemon is NodeDaemon.KUBEPROXY_EXT:
            from kubeproxy_ext.config import KIND, KubeproxyExtConfiguration

            return KubeproxyExtConfiguration, KIND
        if daemon is NodeDaemon.DNSCONFIG:
            from dnsconfig.config import KIND, DnsConfigConfiguration

            return DnsConfigConfiguration, KIND
        if daemon is NodeDaemon.VC_OPERATOR:
            from tenant_operator.config import KIND, OperatorConfiguration

            return OperatorConfiguration, KIND
        from syncer.config import KIND, SyncerConfiguration
    except ModuleNotFoundError as error:
        raise ToolError(f"{daemon.value} is not installed here ({error.name} is missing)") from None
    return SyncerConfiguration, KIND
