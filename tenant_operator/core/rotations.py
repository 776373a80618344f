# SPDX-License-Identifier: Apache-2.0
"""What rotates of a control plane, and whom a plan asks before the next step of a rotation."""

from collections.abc import Mapping, Sequence

import msgspec

from daemonkit.backoff import backoff_s
from tenancy import keys
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.probes import NodesProbe, RotationProbe
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import RotationStatus
from tenant_operator.pki.facts import digest_of
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import (
    DROPPED,
    ENCRYPTION_KEY,
    PLANS,
    REVOKED_WAIT_S,
    TENANT_WAIT_S,
    TENANT_WAITS_S,
    Asked,
    Consumer,
    ConsumerAnswer,
)
from tenant_operator.provisioners.native.api_server import reports_encryption

SUPPORTED = frozenset(
    {
        names.SERVICE_ACCOUNT_KEYS,
        ENCRYPTION_KEY,
        names.CLUSTER_CA,
        names.ETCD_CA,
        names.FRONT_PROXY_CA,
        names.GATEWAY_CA,
        names.KUBELET_CLIENT_CA,
    }
)
"""By the names in requests. What is not here is made once, and stays."""

ASKED, VERSION = "asked", "version"
"""Keys of a probe's facts: all answers as JSON, and the version of the Secret that they are about."""

# An answer is about a moment; a consumer that starts later is not in it.
_FRESH_S = 30.0
# A mounted file arrives within 90 s. A store that is to restart may take weeks.
_ASK_AGAIN_S = 3.0
_OFTEN = 40
_LONGEST_S = 300.0
_COMPLETE = "complete"

_AnswerTable = dict[Consumer, dict[str, ConsumerAnswer | None] | None]
_DECODER = msgspec.json.Decoder(_AnswerTable)


class RotationScope(msgspec.Struct, frozen=True):
    """Of which control plane consumers are asked. `files` as of `RotationProbe`."""

    observed: Observed
    control_plane: ControlPlane
    settings: Settings
    files: dict[str, str]

    def answers(self) -> Mapping[str, Asked]:
        """What consumers answered to the last questions, by what rotates. Steps need `is_fresh` ones."""
        observed = self.observed
        found: dict[str, Asked] = {}
        for what in SUPPORTED:
            probe = self.probe(what)
            result = observed.probes.get(probe.name)
            if result is not None and result.is_ok and result.facts[VERSION] == probe.version:
                found[what] = _DECODER.decode(result.facts[ASKED])
        if ENCRYPTION_KEY in found:
            stored = _stored(observed, self.control_plane.key, servers_of(found[ENCRYPTION_KEY]))
            found[ENCRYPTION_KEY] = {**found[ENCRYPTION_KEY], Consumer.STORED_SECRETS: stored}
        if names.CLUSTER_CA in found:
            found[names.CLUSTER_CA] = {
                **found[names.CLUSTER_CA],
                **_kubeconfigs(observed, self.control_plane),
            }
        return found

    def is_fresh(self, what: str) -> bool:
        """Whether the answers about it are of now."""
        result = self.observed.probes.get(self.probe(what).name)
        return result is not None and 0.0 <= self.observed.now_s - result.at <= _FRESH_S

    def ask(self, builder: PlanBuilder, waiting: Sequence[RotateSecret]) -> None:
        """Ask the consumers of what waits for answers, every few seconds, and later each time once they have
        answered the same for long."""
        for each in waiting:
            probe = self.probe(each.what)
            before = self.observed.probes.get(probe.name)
            if before is None or before.facts.get(VERSION) != probe.version:
                builder.probes.append(probe)
                builder.look_again(_ASK_AGAIN_S)
                continue
            late = max(before.repeats - _OFTEN, 0) + 1
            wait_s = backoff_s(late, first_s=_ASK_AGAIN_S, longest_s=_LONGEST_S)
            age_s = self.observed.now_s - before.at
            # An answer of the future is of a clock that was ahead.
            is_due = age_s >= wait_s or age_s < 0.0
            if is_due:
                builder.probes.append(probe)
            builder.look_again(wait_s if is_due else wait_s - age_s)

    def probe(self, what: str) -> RotationProbe:
        """The question about the Secret as it is now."""
        key = self.control_plane.key
        secret = Ref("Secret", key, PLANS[what].secret)
        live = self.observed.objects.get(secret)
        version = "" if live is None else live.metadata.resource_version
        files, nodes = self.files, None
        if what == ENCRYPTION_KEY and reports_encryption(self.control_plane):
            files = {}  # a pod reads it again, and its template has no digest of it
        if what == names.KUBELET_CLIENT_CA:
            client = Ref("Secret", key, names.API_SERVER_KUBELET_CLIENT)
            nodes = NodesProbe(client, self.settings.vn_agent_port, self.settings.vn_agent_authority_pem)
        return RotationProbe(what, secret, ",".join((version, *files.values())), files, nodes)


def servers_of(asked: Asked) -> str:
    """Identifies the API servers that were asked, by the names of their pods."""
    return digest_of(",".join(sorted(asked.get(Consumer.API_SERVER) or ())).encode())


def progress_of(annotations: Mapping[str, str], servers: str) -> str | None:
    """Behind which token of a list Secrets are still to be rewritten; empty from the first one, None if all
    are.

    Only while the same API servers run: one that came later may have written by the former key before it had
    read the next.
    """
    before, _, token = annotations.get(keys.ROTATION_PROGRESS, "").partition(":")
    if before != servers:
        return ""
    return None if token == _COMPLETE else token


def progress_text(servers: str, token: str) -> str:
    """As `progress_of` reads it, of the token behind the last Secret that was rewritten."""
    return f"{servers}:{token or _COMPLETE}"


def _stored(observed: Observed, key: str, servers: str) -> dict[str, ConsumerAnswer | None]:
    live = observed.live("Secret", key, PLANS[ENCRYPTION_KEY].secret)
    annotations = {} if live is None else live.metadata.annotations
    ids = annotations.get(keys.KEY_IDS, "").split(",")
    uses = ids if progress_of(annotations, servers) is not None else ids[:1]
    return {"": ConsumerAnswer(uses=frozenset(uses))}


def _kubeconfigs(observed: Observed, control_plane: ControlPlane) -> Asked:
    """Who works by kubeconfigs that the operator issued: itself, which reads its own each time, and people,
    as far as they have read theirs now. vc-syncer reports by which certificate it works."""
    key, named = control_plane.key, names.tenant_kubeconfig(control_plane.name)
    in_use = next(
        (
            each.message
            for each in observed.virtual_cluster.status.conditions
            if each.reason == keys.CREDENTIAL_IN_USE and each.status == "True"
        ),
        "",
    )
    syncer = observed.live("Secret", key, names.SYNCER_CLIENT)
    is_in_use = syncer is not None and syncer.digests.get("tls.crt") == in_use
    return {
        Consumer.OPERATOR: {"": _issued(observed.live("Secret", key, names.OPERATOR_CLIENT))},
        Consumer.TENANT_ADMIN: {"": _issued(observed.live("Secret", control_plane.namespace, named))},
        Consumer.SYNCER: {"": _issued(syncer) if is_in_use else None},
    }


def _issued(live: LiveObject | None) -> ConsumerAnswer | None:
    """By which key a Secret's certificate was signed."""
    if live is None:
        return None
    found = live.secret.certificate
    return None if found is None else ConsumerAnswer(uses=frozenset({found.authority_key_id}))


def encode(asked: Asked) -> str:
    """As `answers` reads it. The same answers are the same text."""
    return msgspec.json.encode(asked, order="deterministic").decode()


def _remedy(rotation: RotationStatus, kept: Sequence[Consumer]) -> str:
    """What to do about objects of the tenant, which are as the tenant keeps them, and what comes else."""
    remedy = "If this stays, delete these ConfigMaps in the tenant: immutable ones are not written, nor those"
    remedy += " that a webhook guards, and new ones are made at once"
    ends = [f"{TENANT_WAIT_S / 86400:.0f} days"]
    if Consumer.TOKEN_SECRETS in kept:
        remedy, ends = "Delete the tenant's Secrets of type kubernetes.io/service-account-token", []
    if rotation.what in keys.REVOCABLE:
        annotation = f"{keys.REVOKE_PREFIX}{rotation.what}={rotation.token}"
        ends.append(f"{REVOKED_WAIT_S / 60:.0f} minutes with annotation {annotation} of the VirtualCluster")
    return f"{remedy}; this phase goes on without them after {', or '.join(ends)}"


def sentence(rotation: RotationStatus) -> str:
    """For a condition's message."""
    waits = f", waits for {rotation.waits_for}" if rotation.waits_for else ""
    if (rotation.what, rotation.phase) == (names.ETCD_CA, DROPPED) and f"{names.ETCD}/" in waits:
        # Its only member, or one that does not come back.
        waits += ": it ends when these Pods start again, so delete them at a time that suits the tenant"
    kept = [each for each in TENANT_WAITS_S if each in waits]
    if kept:
        waits += f". {_remedy(rotation, kept)}"
    return f"Rotation of {rotation.what}: {rotation.phase}{waits}."
