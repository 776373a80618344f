# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys of a control plane: which are to be made now, and what of them is public."""

import base64
from collections.abc import Mapping, Sequence

from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import GenerateKeys, IssueAuthority, IssueLeaf
from tenant_operator.core.writes import apply_if_needed
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.pki import catalog
from tenant_operator.pki.catalog import LeafSpec
from tenant_operator.pki.facts import bundle_of, data_digest, facts_of

GENERATED = (names.SERVICE_ACCOUNT_KEYS, names.ENCRYPTION_CONFIG)
"""Secrets with a random key each."""


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    addresses: Sequence[str],
    settings: Settings,
) -> bool:
    """Make what is missing or due. Returns whether all is there that workloads mount."""
    found = _authorities(builder, observed, control_plane)
    for name in GENERATED:
        if observed.live("Secret", control_plane.key, name) is None:
            builder.steps.append(GenerateKeys(Ref("Secret", control_plane.key, name), control_plane.labels))
    if len(found) < len(catalog.AUTHORITIES):
        builder.wait(f"authorities of {control_plane.key}")
        return False
    bundles = authorities_map(control_plane, found, settings)
    apply_if_needed(builder, observed.objects.get(ref_of(bundles)), bundles)
    missing = _leaves(builder, observed, control_plane, found, addresses, bundles["data"])
    leaf = observed.live("Secret", control_plane.key, names.API_SERVER_KUBELET_CLIENT)
    if leaf is not None:
        for manifest in registration(control_plane, found[names.KUBELET_CLIENT_CA], leaf):
            apply_if_needed(builder, observed.objects.get(ref_of(manifest)), manifest)
    if missing:
        builder.wait(f"Secret {control_plane.key}/{missing[0].secret}")
    return not missing


def _authorities(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane
) -> Mapping[str, LiveObject]:
    """The Secrets of the authorities that are there, by their names; missing ones are made."""
    found = {}
    for spec in catalog.authorities(control_plane):
        live = observed.live("Secret", control_plane.key, spec.secret)
        if live is None:
            builder.steps.append(IssueAuthority(spec, control_plane.key, control_plane.labels))
        else:
            found[spec.secret] = live
    return found


def _leaves(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    found: Mapping[str, LiveObject],
    addresses: Sequence[str],
    bundles: Mapping[str, str],
) -> list[LeafSpec]:
    """Issue what is missing or due; returns those that do not exist."""
    missing = []
    for spec in catalog.leaves(control_plane, addresses, ()):
        live = observed.objects.get(spec.ref)
        authority = found[spec.authority]
        bundle = bundles[f"{names.CLUSTER_CA}.crt"].encode()
        signer = facts_of(authority.certificates["tls.crt"])
        digest = catalog.spec_digest(spec, signer.spki_sha256, bundle)
        if live is None:
            missing.append(spec)
        ref = Ref("Secret", control_plane.key, spec.authority)
        if live is None:
            builder.steps.append(IssueLeaf(spec, ref, control_plane.labels, digest, bundle))
    return missing


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
