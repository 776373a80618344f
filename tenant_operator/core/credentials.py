# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys of a control plane: which are to be made now, and what of them is public."""

import base64
import math
from collections.abc import Mapping, Sequence

import msgspec

from tenancy import keys
from tenant_operator.core import known_keys, lost_namespace, rotations, served
from tenant_operator.core.conditions import ConditionStatus, ConditionType, Finding
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import GenerateKeys, IssueAuthority, IssueLeaf, OperatorStep, Rotate
from tenant_operator.core.writes import apply_all, apply_if_needed
from tenant_operator.life.requests import Requests
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.exposure import OutsideEndpoint
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.model.virtual_cluster import RotationStatus
from tenant_operator.pki import catalog
from tenant_operator.pki.catalog import LeafSpec
from tenant_operator.pki.facts import CertificateFacts, SecretFacts, bundle_of, data_digest, digest_of
from tenant_operator.pki.plan import (
    ALL_CERTIFICATES,
    KEY_SECRETS,
    MakeAuthority,
    MakeKeys,
    MakeLeaf,
    PkiInputs,
    RotateSecret,
    plan_pki,
)
from tenant_operator.pki.renewal import AuthorityProblem, certificates_condition, problems_text, requests_wait
from tenant_operator.provisioners.native.api_server import has_signer

SIGNER_TOKEN_S = 86400.0
"""vc-signer's `--max-token-seconds`."""
API_SERVER_TOKEN_S = 366 * 86400.0
_DAY_S = 86400.0


class CredentialState(msgspec.Struct):
    """What a plan found of certificates. `shown` are those in use, as far as they were asked for. `has_all`:
    all is there that workloads mount."""

    problems: tuple[AuthorityProblem, ...]
    leaves: dict[LeafSpec, SecretFacts | None]
    rotations: tuple[RotationStatus, ...]
    rotated: dict[str, str]
    shown: dict[str, CertificateFacts] = {}
    request: str = ""
    has_all: bool = False

    def finding(self, now: float) -> Finding:
        """The condition CertificatesValid. It names what rotates."""
        found = certificates_condition(self.leaves, self.shown, self.problems, now)
        waits = requests_wait(self.leaves.values(), self.request, now)
        message = " ".join(filter(None, (found.message, *map(rotations.sentence, self.rotations), waits)))
        return Finding(ConditionType.CERTIFICATES_VALID, ConditionStatus(found.status), found.reason, message)


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    addresses: Sequence[str],
    reached: OutsideEndpoint,
    settings: Settings,
    requests: Requests,
    files: dict[str, str],
) -> CredentialState:
    """Make what is missing or due, and take the next steps of rotations. `files` as of `RotationProbe`."""
    specs = catalog.leaves(control_plane, addresses, reached.names, reached.url)
    known = catalog.authorities(control_plane)
    key = control_plane.key
    found = {
        spec.secret: live
        for spec in known
        if (live := observed.live("Secret", key, spec.secret)) is not None and "tls.crt" in live.certificates
    }
    cluster = found.get(names.CLUSTER_CA)
    secrets = {ref: live.secret for ref, live in observed.objects.items() if ref.kind == "Secret"}
    restored = known_keys.known_annotations(observed, control_plane)
    for ref, notes in restored.items():
        all_notes = {**secrets[ref].annotations, **notes}
        secrets[ref] = msgspec.structs.replace(secrets[ref], annotations=all_notes)
        builder.steps.append(known_keys.annotated(observed, control_plane, ref, notes))
    scope = rotations.RotationScope(observed, control_plane, settings, files)
    asked = scope.answers()
    inputs = PkiInputs(
        key,
        known,
        specs,
        secrets,
        b"" if cluster is None else trusted(cluster),
        requests.rotations,
        asked,
        observed.now_s,
        {
            names.SERVICE_ACCOUNT_KEYS: token_life_s(control_plane),
            names.CLUSTER_CA: catalog.SHORT_DAYS * _DAY_S,
        },
        requests.revoked,
        rotations.SUPPORTED,
        known_keys.spent_tokens(observed),
        known_keys.older_keys(observed, control_plane, requests.rotations),
        known_keys.copy_of_keys(observed, control_plane),
        has_run=observed.virtual_cluster.status.cluster_version != "",
        is_empty_allowed=lost_namespace.is_empty_allowed(observed, control_plane),
    )
    plan = plan_pki(inputs)
    rotating = {each.what for each in plan.steps if isinstance(each, RotateSecret)}
    if any(what in asked and not scope.is_fresh(what) for what in rotating):
        # To wait for a consumer an answer of before will do. To act, all are asked again.
        asked = {what: each for what, each in asked.items() if scope.is_fresh(what)}
        plan = plan_pki(msgspec.structs.replace(inputs, asked=asked))
    made = CredentialState(
        plan.problems,
        {spec: secrets.get(spec.ref) for spec in specs},
        plan.rotations,
        plan.rotated,
        served.shown(observed),
        requests.rotations.get(ALL_CERTIFICATES, ""),
    )
    issued = [each for each in plan.steps if not isinstance(each, RotateSecret)]
    builder.steps += [_operator_step(each, observed, control_plane) for each in issued]
    scope.ask(builder, plan.asks)
    if not math.isinf(plan.due_at):
        builder.look_again(max(plan.due_at - observed.now_s, 1.0))
    if made.problems:
        builder.wait(problems_text(made.problems))
    if len(found) < len(known):
        builder.wait(f"authorities of {key}")
        return made
    bundles = authorities_map(control_plane, found, settings)
    before = len(builder.steps)
    apply_if_needed(builder, observed.objects.get(ref_of(bundles)), bundles)
    has_bundles = len(builder.steps) == before
    leaf = observed.live("Secret", key, names.API_SERVER_KUBELET_CLIENT)
    if leaf is not None and "tls.crt" in leaf.certificates:
        for manifest in registration(control_plane, found[names.KUBELET_CLIENT_CA], leaf):
            apply_if_needed(builder, observed.objects.get(ref_of(manifest)), manifest)
    apply_all(builder, observed, client_list(observed, control_plane, made))
    missing = [spec for spec, secret in made.leaves.items() if secret is None]
    if missing:
        builder.wait(f"Secret {key}/{missing[0].secret}")
    # A pod that mounts a key which is lost would never start.
    has_keys = all(observed.live("Secret", key, name) is not None for name in KEY_SECRETS)
    made.has_all = has_keys and not missing
    if made.has_all and has_bundles and not (issued or restored):
        # What the present keys sign is there before they change, and the bundles that pods are asked about.
        builder.steps += [
            Rotate(each, control_plane.labels, rotations.servers_of(asked.get(each.what, {})))
            for each in plan.steps
            if isinstance(each, RotateSecret)
        ]
    return made


def token_life_s(control_plane: ControlPlane) -> float:
    """How long a service account token may be valid at most.

    vc-signer bounds all tokens. Without it, kube-apiserver gives pods tokens of a year, for programs which
    read theirs once (--service-account-extend-token-expiration).
    """
    return SIGNER_TOKEN_S if has_signer(control_plane) else API_SERVER_TOKEN_S


def _operator_step(
    step: MakeAuthority | MakeKeys | MakeLeaf, observed: Observed, control_plane: ControlPlane
) -> OperatorStep:
    """The step as the edge takes it: with labels, and the version of the Secret that it replaces."""
    labels = control_plane.labels

    def version(ref: Ref) -> str:
        live = observed.objects.get(ref)
        return "" if live is None else live.metadata.resource_version

    match step:
        case MakeAuthority(spec, ref, annotations):
            return IssueAuthority(spec, ref.namespace, labels, annotations, version(ref))
        case MakeKeys(ref, annotations):
            return GenerateKeys(ref, labels, annotations, version(ref))
        case MakeLeaf(spec, authority, annotations, bundle):
            return IssueLeaf(spec, authority, labels, annotations, bundle, version(spec.ref))


def authorities_map(
    control_plane: ControlPlane, found: Mapping[str, LiveObject], settings: Settings
) -> Object:
    """The ConfigMap of all bundles."""
    data = {spec.bundle: trusted(found[spec.secret]).decode() for spec in catalog.AUTHORITIES if spec.bundle}
    request_header = (found[names.FRONT_PROXY_CA], found[names.GATEWAY_CA])
    data[names.REQUEST_HEADER_BUNDLE] = bundle_of(map(trusted, request_header)).decode()
    data[names.KUBELET_SERVING_BUNDLE] = settings.vn_agent_authority_pem.decode()
    return _object(control_plane, "ConfigMap", names.AUTHORITIES, data=data)


def trusted(live: LiveObject) -> bytes:
    """The certificates of an authority that its consumers trust now: during a rotation, the next one's
    too."""
    return bundle_of(live.certificates.get(key, b"") for key in ("tls.crt", "next.crt", "previous.crt"))


def _loaded(live: LiveObject) -> bytes:
    """What programs that read an authority once must have read, to accept all that is shown now.

    Of the previous one those need no more who are shown a certificate of the present one by it, until it is
    dropped.
    """
    found = live.certificates
    # Who edits the Secret may have taken it.
    present = found.get("tls.crt", b"")
    if "next.crt" in found:
        return bundle_of((present,))
    previous = found.get("previous.crt", b"")
    return bundle_of((previous,) if previous and "chain.crt" in found else (present, previous))


def registration(control_plane: ControlPlane, authority: LiveObject, leaf: LiveObject) -> tuple[Object, ...]:
    """The Secrets by which vn-agents know the tenant's API server: certificates alone, no key."""
    texts = (
        (names.REGISTERED_AUTHORITY, trusted(authority)),
        (names.REGISTERED_CLIENT, leaf.certificates["tls.crt"]),
    )
    return tuple(
        _object(
            control_plane,
            "Secret",
            name,
            type="Opaque",
            data={"tls.crt": base64.b64encode(text).decode()},
        )
        for name, text in texts
    )


def client_list(observed: Observed, control_plane: ControlPlane, made: CredentialState) -> tuple[Object, ...]:
    """The ConfigMap of clients that vn-agents serve the pages: metrics-server in the tenant.

    The certificate before the last renewal stays until the next one: metrics-server reads its file every few
    minutes, and vn-agent checks the time of each.
    """
    secret = next((facts for spec, facts in made.leaves.items() if spec.secret == names.METRICS_CLIENT), None)
    if secret is None or secret.certificate is None:
        return ()
    spki = secret.certificate.spki_sha256
    live = observed.live("ConfigMap", control_plane.key, names.REGISTERED_CLIENTS)
    known = [] if live is None else _registered(live)
    former = known[1:2] if spki in known[:1] else known[:1]
    clients = [{"spkiSHA256": each, "role": "metrics"} for each in (spki, *former)]
    # JSON is YAML.
    data = {names.REGISTERED_CLIENTS_KEY: msgspec.json.encode(clients).decode()}
    return (_object(control_plane, "ConfigMap", names.REGISTERED_CLIENTS, data=data),)


class _ListedClient(msgspec.Struct, frozen=True):
    spki: str = msgspec.field(name="spkiSHA256")


def _registered(live: LiveObject) -> list[str]:
    """What the ConfigMap has, newest first; nothing if it was edited to something else."""
    text = (live.value.get("data") or {}).get(names.REGISTERED_CLIENTS_KEY, "")
    try:
        return [each.spki for each in msgspec.json.decode(text, type=list[_ListedClient])]
    except msgspec.DecodeError:
        return []


def digests(observed: Observed, control_plane: ControlPlane) -> dict[str, str]:
    """Digests of what pods mount: of a Secret by its name, of a ConfigMap's values by `NAME/KEY`.

    `NAME/issuer` is the key that signed a Secret's certificate: it changes with an authority, and with no
    renewal. `NAME/loaded` and `NAME/first-loaded` are of what etcd and its clients read once (`_loaded`).
    """
    found: dict[str, str] = {}
    for ref, live in observed.objects.items():
        if ref.namespace != control_plane.key:
            continue
        if ref.kind == "Secret":
            found[ref.name] = data_digest(live.digests)
            if (facts := live.secret.certificate) is not None:
                found[f"{ref.name}/{names.ISSUER}"] = facts.authority_key_id
            if ref.name == names.ETCD_CA:
                loaded = digest_of(_loaded(live))
                found[f"{ref.name}/{names.LOADED}"] = loaded
                first = live.metadata.annotations.get(keys.FIRST_LOADED, loaded)
                found[f"{ref.name}/{names.FIRST_LOADED}"] = first
        elif ref.kind == "ConfigMap":
            found |= {f"{ref.name}/{key}": digest for key, digest in live.digests.items()}
    return found


def _object(control_plane: ControlPlane, kind: str, name: str, **rest: object) -> Object:
    metadata = {"name": name, "namespace": control_plane.key, "labels": control_plane.labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}
