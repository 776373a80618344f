# SPDX-License-Identifier: Apache-2.0
"""All that is to be done about a control plane's certificates and keys now, in the order in which it is done.
Pure.

Nothing is remembered between two plans: what was begun stands in annotations of Secrets.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import RotationStatus
from tenant_operator.pki import renewal, rotation
from tenant_operator.pki.catalog import AuthoritySpec, LeafSpec, spec_digest
from tenant_operator.pki.facts import CertificateFacts, SecretFacts
from tenant_operator.pki.renewal import AuthorityProblem, DueReason
from tenant_operator.pki.rotation import PLANS, Asked, RotationDecision, RotationState, RotationStep

# By the name of its Secret, what rotates there.
KEY_SECRETS = {
    names.SERVICE_ACCOUNT_KEYS: names.SERVICE_ACCOUNT_KEYS,
    names.ENCRYPTION_CONFIG: rotation.ENCRYPTION_KEY,
}
ALL_CERTIFICATES = "certificates"
_MAX_NAMED = 10


class MakeAuthority(msgspec.Struct, frozen=True):
    """Make an authority, in a Secret with these annotations: there is none, or none that can be read."""

    spec: AuthoritySpec
    secret: Ref
    annotations: dict[str, str]


class MakeKeys(msgspec.Struct, frozen=True):
    """Make a Secret of keys without a certificate, with these annotations and those of the keys; likewise."""

    secret: Ref
    annotations: dict[str, str]


class MakeLeaf(msgspec.Struct, frozen=True):
    """Issue a certificate into its Secret, with these annotations, by the authority in another one.

    `bundle` is what its kubeconfig trusts, if it has one.
    """

    spec: LeafSpec
    authority: Ref
    annotations: dict[str, str]
    bundle: bytes
    reason: DueReason


class RotateSecret(msgspec.Struct, frozen=True):
    """Take a step of a rotation, as `rotating.rotate` has it; `spec` is of an authority."""

    what: str
    secret: Ref
    step: RotationStep
    request: str = ""
    spec: AuthoritySpec | None = None


PkiStep = MakeAuthority | MakeKeys | MakeLeaf | RotateSecret


class PkiPlan(msgspec.Struct, frozen=True):
    """`steps` in order; `rotations` that are under way, and of these what waits for answers (`asks`);
    `rotated` has the requests that are complete, by what.
    `due_at` (seconds since 1970): when the next plan has something to do, if nothing else changes before."""

    steps: tuple[PkiStep, ...]
    problems: tuple[AuthorityProblem, ...] = ()
    rotations: tuple[RotationStatus, ...] = ()
    rotated: dict[str, str] = {}
    asks: tuple[RotateSecret, ...] = ()
    due_at: float = math.inf


class PkiInputs(msgspec.Struct, frozen=True):
    """What a plan is made from.

    `secrets` are the Secrets that exist. `bundle` is what kubeconfigs trust (PEM). `requests` are the values
    of the annotations `vcnode.io/rotate-<what>`, by what; `asked` what consumers answered, and `revoked` the
    values of `vcnode.io/revoke-<what>`, likewise. `held_s`: how long is valid what a key signed for those who
    cannot be asked. What is not `rotatable` is made, and begins no rotation. `spent` are tokens of requests,
    by the name of the Secret that was there. `older` are names of Secrets that lack the key which was in use
    last. `keys_copy` is the name of one that has a copy of the keys of encryption. `has_run`: the control
    plane did, whatever is left of it; what is lost is made anew if it `is_empty_allowed`: a person has given
    up what was there.
    """

    namespace: str
    authorities: tuple[AuthoritySpec, ...]
    leaves: tuple[LeafSpec, ...]
    secrets: Mapping[Ref, SecretFacts]
    bundle: bytes
    requests: Mapping[str, str]
    asked: Mapping[str, Asked]
    now_s: float
    held_s: Mapping[str, float]
    revoked: Mapping[str, str] = {}
    rotatable: frozenset[str] = frozenset(PLANS)
    spent: Mapping[str, Collection[str]] = {}
    older: Collection[str] = ()
    keys_copy: str = ""
    has_run: bool = False
    is_empty_allowed: bool = False


def plan_pki(inputs: PkiInputs) -> PkiPlan:
    """What to do now. Certificates come before steps of rotations: those change what signs."""
    builder = _Builder(inputs)
    usable = dict(builder.authorities())
    builder.keys()
    builder.leaves(usable)
    builder.nothing()
    return PkiPlan(
        (*builder.issued, *builder.rotating),
        # What loses data goes first.
        tuple(sorted(builder.problems, key=lambda each: each.secret.name != names.ENCRYPTION_CONFIG)),
        tuple(builder.rotations),
        builder.rotated,
        tuple(builder.asks),
        builder.due_at,
    )


class _Builder:
    def __init__(self, inputs: PkiInputs) -> None:
        self._inputs = inputs
        self.issued: list[PkiStep] = []
        self.rotating: list[RotateSecret] = []
        self.problems: list[AuthorityProblem] = []
        self.rotations: list[RotationStatus] = []
        self.rotated: dict[str, str] = {}
        self.asks: list[RotateSecret] = []
        self.due_at = math.inf

    def authorities(self) -> Iterator[tuple[str, CertificateFacts]]:
        """Those that sign, by the names of their Secrets."""
        inputs = self._inputs
        for spec in inputs.authorities:
            ref = Ref("Secret", inputs.namespace, spec.secret)
            secret, request = inputs.secrets.get(ref), inputs.requests.get(spec.secret, "")
            signed = [leaf.ref for leaf in inputs.leaves if leaf.authority == spec.secret]
            existing = [each for each in signed if each in inputs.secrets]
            spent = inputs.spent.get(spec.secret, ())
            was_there = bool(signed) and spec.secret in inputs.spent
            problem = renewal.authority_problem(
                ref, secret, existing, inputs.now_s, request, spent, was_there=was_there
            )
            if problem is not None and not (inputs.is_empty_allowed and secret is None):
                self.problems.append(problem)
                continue
            state = None if secret is None else rotation.state_of(secret)
            own = None if secret is None else secret.certificate
            if state is None or own is None:
                self.issued.append(MakeAuthority(spec, ref, _annotations(request)))
                continue
            due_at = renewal.due_at(own)
            self._rotate(RotateSecret(spec.secret, ref, RotationStep.WAIT, request, spec), state, due_at)
            if secret is not None and secret.is_as_written:
                yield spec.secret, own

    def keys(self) -> None:
        """Secrets of keys without a certificate."""
        inputs = self._inputs
        is_provisioned = inputs.has_run or any(leaf.ref in inputs.secrets for leaf in inputs.leaves)
        for name, what in KEY_SECRETS.items():
            ref = Ref("Secret", inputs.namespace, name)
            secret, request = inputs.secrets.get(ref), inputs.requests.get(what, "")
            problem = renewal.keys_problem(
                ref,
                what,
                secret,
                request,
                inputs.spent.get(name, ()),
                inputs.keys_copy if name == names.ENCRYPTION_CONFIG else "",
                is_provisioned=is_provisioned,
                is_older=name in inputs.older,
            )
            if problem is not None and not (inputs.is_empty_allowed and secret is None):
                self.problems.append(problem)
                continue
            # One that was edited is here by request.
            state = rotation.state_of(secret) if secret is not None and secret.is_as_written else None
            if state is None:
                self.issued.append(MakeKeys(ref, _annotations(request)))
            else:
                self._rotate(RotateSecret(what, ref, RotationStep.WAIT, request), state, math.inf)

    def leaves(self, authorities: Mapping[str, CertificateFacts]) -> None:
        """Certificates that are due, of the authorities that sign."""
        inputs = self._inputs
        request = inputs.requests.get(ALL_CERTIFICATES, "")
        found = [inputs.secrets.get(spec.ref) for spec in inputs.leaves]
        if request and not any(each is None or renewal.is_other_request(each, request) for each in found):
            self.rotated[ALL_CERTIFICATES] = request
        for spec in inputs.leaves:
            authority = authorities.get(spec.authority)
            if authority is None:
                continue
            secret = inputs.secrets.get(spec.ref)
            digest = spec_digest(spec, authority.spki_sha256, inputs.bundle)
            reason = renewal.leaf_due(secret, digest, authority, inputs.now_s, request)
            if secret is not None and secret.certificate is not None:
                self.due_at = min(self.due_at, renewal.due_at(secret.certificate, authority))
                if reason is None and renewal.is_other_request(secret, request):
                    self.due_at = min(self.due_at, renewal.request_due_at(secret))
            signer = Ref("Secret", inputs.namespace, spec.authority)
            if reason is not None:
                annotations = {keys.SPEC_DIGEST: digest} | _annotations(request)
                self.issued.append(MakeLeaf(spec, signer, annotations, inputs.bundle, reason))

    def nothing(self) -> None:
        """Requests for keys that this control plane does not have, as the authority of an etcd."""
        inputs = self._inputs
        known = {*(each.secret for each in inputs.authorities), *KEY_SECRETS.values(), ALL_CERTIFICATES}
        self.rotated |= {what: token for what, token in inputs.requests.items() if what not in known}

    def _rotate(self, step: RotateSecret, state: RotationState, due_at: float) -> None:
        inputs = self._inputs
        if step.what not in inputs.rotatable:
            return
        found = rotation.next_step(
            PLANS[step.what],
            state,
            inputs.asked.get(step.what, {}),
            inputs.now_s,
            request=step.request,
            is_due=inputs.now_s >= due_at,
            held_s=inputs.held_s.get(step.what, 0.0),
            revoked=inputs.revoked.get(step.what, ""),
        )
        self.due_at = min(self.due_at, due_at)
        self._note(step, state, found)

    def _note(self, step: RotateSecret, state: RotationState, found: RotationDecision) -> None:
        if found.step is not RotationStep.WAIT:
            self.rotating.append(msgspec.structs.replace(step, step=found.step))
        elif step.request and step.request == state.token and not state.phase:
            self.rotated[step.what] = step.request
        if state.phase:
            waits = ", ".join(_bounded(found.waits_for))
            self.rotations.append(RotationStatus(step.what, state.token, state.phase, waits))
        if found.due_at:
            self.due_at = min(self.due_at, found.due_at)
        elif state.phase and found.step in (RotationStep.WAIT, RotationStep.REWRITE, RotationStep.CLEAN):
            self.asks.append(step)


def _annotations(request: str) -> dict[str, str]:
    """What is made anew needs no rotation for the request that led to it."""
    return {keys.ROTATION_TOKEN: request} if request else {}


def _bounded(consumers: Sequence[str]) -> tuple[str, ...]:
    more = len(consumers) - _MAX_NAMED
    return (*consumers[:_MAX_NAMED], *((f"{more} more",) if more > 0 else ()))
