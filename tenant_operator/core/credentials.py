# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys of a control plane: which are to be made now, and what of them is public."""

import base64
import math
from collections.abc import Mapping, Sequence

import msgspec

from tenant_operator.core.conditions import ConditionStatus, ConditionType, Finding
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import GenerateKeys, IssueAuthority, IssueLeaf
from tenant_operator.core.writes import apply_all, apply_if_needed
from tenant_operator.life.requests import Requests
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.pki import catalog
from tenant_operator.pki.catalog import LeafSpec
from tenant_operator.pki.facts import SecretFacts, bundle_of, data_digest, facts_of, secret_facts
from tenant_operator.pki.renewal import (
    AuthorityProblem,
    AuthorityReason,
    authority_problem,
    certificates_condition,
    due_at,
    leaf_due,
)

GENERATED = (names.SERVICE_ACCOUNT_KEYS, names.ENCRYPTION_CONFIG)
"""Secrets with a random key each."""


class CredentialState(msgspec.Struct):
    """What a plan found of certificates. `has_all`: all is there that workloads mount."""

    problems: list[AuthorityProblem]
    leaves: dict[LeafSpec, SecretFacts | None]
    has_all: bool = False

    def finding(self, now: float) -> Finding:
        """The condition CertificatesValid."""
        found = certificates_condition(self.leaves, {}, self.problems, now)
        return Finding(
            ConditionType.CERTIFICATES_VALID, ConditionStatus(found.status), found.reason, found.message
        )


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    addresses: Sequence[str],
    settings: Settings,
    requests: Requests,
) -> CredentialState:
    """Make what is missing or due."""
    specs = catalog.leaves(control_plane, addresses, ())
    made = CredentialState([], {spec: _facts(observed.objects.get(spec.ref)) for spec in specs})
    found = _authorities(builder, observed, control_plane, made, requests)
    _keys(builder, observed, control_plane, made)
    if made.problems:
        builder.wait(made.problems[0].message)
    if len(found) < len(catalog.AUTHORITIES):
        builder.wait(f"authorities of {control_plane.key}")
        return made
    bundles = authorities_map(control_plane, found, settings)
    apply_if_needed(builder, observed.objects.get(ref_of(bundles)), bundles)
    _issue(builder, observed, control_plane, found, bundles["data"], made, requests)
    leaf = observed.live("Secret", control_plane.key, names.API_SERVER_KUBELET_CLIENT)
    if leaf is not None and "tls.crt" in leaf.certificates:
        for manifest in registration(control_plane, found[names.KUBELET_CLIENT_CA], leaf):
            apply_if_needed(builder, observed.objects.get(ref_of(manifest)), manifest)
    apply_all(builder, observed, client_list(observed, control_plane, made))
    missing = [spec for spec, secret in made.leaves.items() if secret is None]
    if missing:
        builder.wait(f"Secret {control_plane.key}/{missing[0].secret}")
    # A pod that mounts a key which is lost would never start.
    has_keys = all(observed.live("Secret", control_plane.key, name) is not None for name in GENERATED)
    made.has_all = has_keys and not missing
    return made


def _facts(live: LiveObject | None) -> SecretFacts | None:
    if live is None:
        return None
    return secret_facts(live.metadata.annotations, live.digests, live.certificates)


def _authorities(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    made: CredentialState,
    requests: Requests,
) -> Mapping[str, LiveObject]:
    """The Secrets of the authorities that are there, by their names. One is made if it has signed nothing."""
    found = {}
    for spec in catalog.authorities(control_plane):
        ref = Ref("Secret", control_plane.key, spec.secret)
        live = observed.objects.get(ref)
        signed = [
            leaf.ref
            for leaf, secret in made.leaves.items()
            if leaf.authority == spec.secret and secret is not None
        ]
        request = requests.rotations.get(spec.secret, "")
        problem = authority_problem(ref, _facts(live), signed, observed.now_s, request)
        if problem is not None:
            made.problems.append(problem)
        if live is not None and "tls.crt" in live.certificates:
            found[spec.secret] = live
        elif live is None and problem is None:
            builder.steps.append(IssueAuthority(spec, control_plane.key, control_plane.labels))
    return found


def _keys(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, made: CredentialState
) -> None:
    """Make the keys that have no certificates; never again: what the first signed or encrypted is lost."""
    is_first = observed.live("Deployment", control_plane.key, names.API_SERVER) is None
    for name in GENERATED:
        ref = Ref("Secret", control_plane.key, name)
        if ref in observed.objects:
            continue
        if is_first:
            builder.steps.append(GenerateKeys(ref, control_plane.labels))
        else:
            message = (
                f"{ref} is missing. Restore it from a backup: without it "
                f"{'no token is valid' if name == names.SERVICE_ACCOUNT_KEYS else 'no Secret can be read'}."
            )
            made.problems.append(AuthorityProblem(AuthorityReason.MISSING, message))


def _issue(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    found: Mapping[str, LiveObject],
    bundles: Mapping[str, str],
    made: CredentialState,
    requests: Requests,
) -> None:
    """Issue what is missing or due, if what signs it may be used."""
    unusable = {problem.message.partition(" is ")[0] for problem in made.problems}
    cluster_bundle = bundles[names.CLUSTER_BUNDLE].encode()
    request = requests.rotations.get("certificates", "")
    for spec, secret in made.leaves.items():
        ref = Ref("Secret", control_plane.key, spec.authority)
        if str(ref) in unusable:
            continue
        signer = facts_of(found[spec.authority].certificates["tls.crt"])
        digest = catalog.spec_digest(spec, signer.spki_sha256, cluster_bundle)
        if leaf_due(secret, digest, signer, observed.now_s, request) is not None:
            live = observed.objects.get(spec.ref)
            version = "" if live is None else live.metadata.resource_version
            builder.steps.append(
                IssueLeaf(spec, ref, control_plane.labels, digest, cluster_bundle, version, request)
            )
        elif secret is not None and secret.certificate is not None:
            at = due_at(secret.certificate, signer)
            if not math.isinf(at):
                builder.look_again(max(at - observed.now_s, 1.0))


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
    """Digests of what pods mount: of a Secret by its name, of a ConfigMap's values by `NAME/KEY`."""
    found: dict[str, str] = {}
    for ref, live in observed.objects.items():
        if ref.namespace != control_plane.key:
            continue
        if ref.kind == "Secret":
            found[ref.name] = data_digest(live.digests)
        elif ref.kind == "ConfigMap":
            found |= {f"{ref.name}/{key}": digest for key, digest in live.digests.items()}
    return found


def _object(control_plane: ControlPlane, kind: str, name: str, **rest: object) -> Object:
    metadata = {"name": name, "namespace": control_plane.key, "labels": control_plane.labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}
