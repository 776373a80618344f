# SPDX-License-Identifier: Apache-2.0
"""Which step a rotation takes next, and whom it waits for. Pure: answers of consumers come in as values.

A rotation replaces an authority, or another key that several programs know, in phases:

    ""        one key
    Trusted   the next key is there, and all who verify trust both; the old one still signs
    Reissued  the next key signs; all who verify still trust both; what the old one signed is replaced
    Dropped   no bundle has the old key; all who trusted it are asked until none does
    ""        the old key is forgotten

`Dropped` is of authorities whose verifiers can be asked. Some are published by kube-apiserver in
`extension-apiserver-authentication`. It adds to that ConfigMap and never removes
(controlplane/controller/clusterauthenticationtrust, 1.34), so the operator does.

A phase ends when every consumer was asked and answered that it is there. One that cannot be asked has not
answered: the rotation waits, however long, and the status names it. Each step is one write of one Secret, so
an operator that is killed between two steps finds the phase there when it starts again.

What a tenant keeps as it likes is waited for so long and no longer: a ConfigMap that is immutable, or that a
webhook of the tenant guards, would keep the tenant's authority for ever. What stays as it was is read by
programs of this tenant alone.
"""

import enum
import math
from collections.abc import Collection, Iterator, Mapping

import msgspec

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.pki.facts import SecretFacts

TRUSTED, REISSUED, DROPPED = "Trusted", "Reissued", "Dropped"
ENCRYPTION_KEY = "encryption-key"


class Consumer(enum.StrEnum):
    """Who verifies by a key, or shows what it signed. Of some there are several: replicas, members, nodes."""

    API_SERVER = names.API_SERVER
    CONTROLLER_MANAGER = names.CONTROLLER_MANAGER
    ETCD = names.ETCD
    VN_AGENT = "vn-agent"
    SYNCER = "vc-syncer"
    OPERATOR = "vc-operator"
    GATEWAY = "gateway"
    ROOT_CERTIFICATES = "kube-root-ca.crt"
    """The ConfigMap of that name in the tenant's namespaces, which kube-controller-manager writes."""
    AUTHENTICATION = "extension-apiserver-authentication"
    """The ConfigMap of that name in kube-system, by which aggregated API servers trust the front proxy."""
    TENANT_ADMIN = "tenant-admin"
    """The Secret with the tenant administrator's kubeconfig."""
    TOKEN_SECRETS = "token-secrets"  # noqa: S105 - a name
    """Secrets of the tenant of type kubernetes.io/service-account-token: such tokens never expire."""
    STORED_SECRETS = "stored-secrets"
    """What the datastore holds encrypted."""


# How long each phase waits for what the tenant keeps; the second one if a person has revoked the former key:
# kube-controller-manager has written all namespaces by then.
TENANT_WAIT_S = 7 * 86400.0
REVOKED_WAIT_S = 600.0
TENANT_WAITS_S: Mapping[Consumer, float] = {
    Consumer.ROOT_CERTIFICATES: TENANT_WAIT_S,
    Consumer.AUTHENTICATION: TENANT_WAIT_S,
    # The tenant's programs have them, and nothing issues them anew.
    Consumer.TOKEN_SECRETS: math.inf,
}
"""Consumers that are objects of the tenant, and how long a phase waits for each."""


class RotationPlan(msgspec.Struct, frozen=True):
    """What rotates in one Secret, and whom to ask. `what` is its name in requests and in the status.

    `verifiers` must trust both keys before the next one signs. `users` must not use the first one any more
    before it is forgotten, group after group. `held` names what it signed for those who cannot be asked: the
    rotation waits for the end of the last one, or for a person who revokes it. `forgotten_by`: these must not
    trust the first one any more before its certificate is forgotten.
    """

    what: str
    secret: str
    verifiers: tuple[Consumer, ...]
    users: tuple[tuple[Consumer, ...], ...]
    held: str = ""
    forgotten_by: tuple[Consumer, ...] = ()

    def without(self, consumers: Collection[Consumer]) -> "RotationPlan":
        """The plan that asks none of these."""

        def others(found: tuple[Consumer, ...]) -> tuple[Consumer, ...]:
            return tuple(each for each in found if each not in consumers)

        return msgspec.structs.replace(
            self,
            verifiers=others(self.verifiers),
            users=tuple(map(others, self.users)),
            forgotten_by=others(self.forgotten_by),
        )


_CLUSTER_VERIFIERS = (
    Consumer.API_SERVER,
    Consumer.CONTROLLER_MANAGER,
    Consumer.ROOT_CERTIFICATES,
    Consumer.AUTHENTICATION,
)

PLANS: Mapping[str, RotationPlan] = {
    plan.what: plan
    for plan in (
        # The API server reads its bundle again. The controller manager does not, and restarts: it hands the
        # bundle out as kube-root-ca.crt. Who merely verifies the API server needs not learn the next one
        # first: it shows a certificate of the next one by the previous one.
        RotationPlan(
            names.CLUSTER_CA,
            names.CLUSTER_CA,
            _CLUSTER_VERIFIERS,
            (
                (
                    Consumer.API_SERVER,
                    Consumer.CONTROLLER_MANAGER,
                    Consumer.OPERATOR,
                    Consumer.TENANT_ADMIN,
                    Consumer.SYNCER,
                ),
            ),
            held="client certificates that the previous authority signed",
            forgotten_by=_CLUSTER_VERIFIERS,
        ),
        RotationPlan(
            names.FRONT_PROXY_CA,
            names.FRONT_PROXY_CA,
            (Consumer.API_SERVER, Consumer.AUTHENTICATION),
            ((Consumer.API_SERVER,),),
            forgotten_by=(Consumer.API_SERVER, Consumer.AUTHENTICATION),
        ),
        # Neither etcd nor the API server's client of it reads its authorities again. So the
        # operator gives them no next one first: all that it signs is shown with a certificate of it by the
        # previous one.
        RotationPlan(
            names.ETCD_CA,
            names.ETCD_CA,
            (),
            ((Consumer.ETCD, Consumer.API_SERVER),),
            forgotten_by=(Consumer.ETCD, Consumer.API_SERVER),
        ),
        RotationPlan(
            names.KUBELET_CLIENT_CA, names.KUBELET_CLIENT_CA, (Consumer.VN_AGENT,), ((Consumer.API_SERVER,),)
        ),
        # The API server has it in one file with the front proxy's.
        RotationPlan(
            names.GATEWAY_CA,
            names.GATEWAY_CA,
            (Consumer.API_SERVER, Consumer.AUTHENTICATION),
            ((Consumer.GATEWAY,),),
            forgotten_by=(Consumer.API_SERVER, Consumer.AUTHENTICATION),
        ),
        RotationPlan(
            names.SERVICE_ACCOUNT_KEYS,
            names.SERVICE_ACCOUNT_KEYS,
            (Consumer.API_SERVER,),
            ((Consumer.API_SERVER,), (Consumer.TOKEN_SECRETS,)),
            held="tokens that the previous key signed",
        ),
        # Secrets are rewritten when all replicas encrypt by the next key, and not before.
        RotationPlan(
            ENCRYPTION_KEY,
            names.ENCRYPTION_CONFIG,
            (Consumer.API_SERVER,),
            ((Consumer.API_SERVER,), (Consumer.STORED_SECRETS,)),
        ),
    )
}
"""By what rotates."""


class ConsumerAnswer(msgspec.Struct, frozen=True):
    """What a consumer does now, for all rotations at once.

    `trusts` are the ids of keys by which it verifies; `uses` those of the keys that it shows, and of the keys
    that signed what it shows. Of a key with a certificate the id is its subject key identifier, in hex.
    """

    trusts: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()


Asked = Mapping[Consumer, Mapping[str, ConsumerAnswer | None] | None]
"""By consumer and by replica, member or node: its answer, None if it has none. None instead of the replicas:
it is not known which there are. A consumer with no replica, as while the tenant sleeps, reads all at its
start."""


class RotationState(msgspec.Struct, frozen=True):
    """Where a rotation stands, as its Secret has it. Keys are by their ids: `current` signs.

    `since`: when all used the next key, in seconds since 1970; 0 before. `phase_since`: when the phase began;
    0 if that is not known.
    """

    current: str
    next: str = ""
    previous: str = ""
    phase: str = ""
    token: str = ""
    since: float = 0.0
    phase_since: float = 0.0


class RotationStep(enum.StrEnum):
    """What to do next."""

    WAIT = "Wait"
    BEGIN = "Begin"
    """Put the next key beside the one that signs."""
    PROMOTE = "Promote"
    """Let the next key sign."""
    MARK = "Mark"
    """Note that all use the next key now."""
    REWRITE = "Rewrite"
    """Write the tenant's Secrets again, as they are, so that they are encrypted by the next key."""
    DROP = "Drop"
    """Trust the previous key no longer."""
    CLEAN = "Clean"
    """Remove the previous authority from `extension-apiserver-authentication`."""
    FORGET = "Forget"
    """Forget the previous authority, which no consumer trusts any more."""


class RotationDecision(msgspec.Struct, frozen=True):
    """`waits_for` names consumers; `due_at` is when to decide again at the latest (seconds since 1970), or
    0."""

    step: RotationStep
    waits_for: tuple[str, ...] = ()
    due_at: float = 0.0


def state_of(secret: SecretFacts) -> RotationState | None:
    """Where the rotation of this Secret stands. None if the key that signs is not known: it cannot be
    read."""
    found = secret.annotations
    listed = found.get(keys.KEY_IDS)
    if listed is None:
        former = "former.crt" if "former.crt" in secret.certificates else "previous.crt"
        ids = [_key_id(secret, key) for key in ("tls.crt", "next.crt", former)]
    else:
        ids = [*listed.split(","), "", "", ""][:3]
    if not ids[0]:
        return None
    return RotationState(
        ids[0],
        ids[1],
        ids[2],
        phase=found.get(keys.ROTATION_PHASE, ""),
        token=found.get(keys.ROTATION_TOKEN, ""),
        since=_seconds(found.get(keys.ROTATION_SINCE, "")),
        phase_since=_seconds(found.get(keys.ROTATION_PHASE_SINCE, "")),
    )


def next_step(
    plan: RotationPlan,
    state: RotationState,
    asked: Asked,
    now: float,
    *,
    request: str = "",
    is_due: bool = False,
    held_s: float = 0.0,
    revoked: str = "",
) -> RotationDecision:
    """What the rotation does next.

    `request` is the token of the last request. `is_due`: it begins without one, as the key is old. `held_s`
    is the longest life of what is held. `revoked` is the token of the rotation whose held ones a person has
    revoked.
    """
    is_revoked = bool(revoked) and revoked == state.token
    plan = plan.without(_given_up(state, now, is_revoked=is_revoked))
    if state.phase == TRUSTED and state.next:
        waits = _lacking(plan.verifiers, asked, trusts=frozenset({state.current, state.next}))
        return RotationDecision(RotationStep.WAIT, waits) if waits else RotationDecision(RotationStep.PROMOTE)
    if state.phase == REISSUED and state.previous:
        is_awaited = bool(plan.held) and not is_revoked
        return _finish(plan, state, asked, now, held_s if is_awaited else 0.0)
    if state.phase == DROPPED:
        return _forget(plan, state, asked)
    is_requested = bool(request) and request != state.token
    return RotationDecision(RotationStep.BEGIN if is_requested or is_due else RotationStep.WAIT)


def can_take(step: RotationStep, state: RotationState) -> bool:
    """Whether the Secret is where the step begins; one that was taken already is not taken again."""
    phases = {
        RotationStep.BEGIN: "",
        RotationStep.PROMOTE: TRUSTED,
        RotationStep.CLEAN: DROPPED,
        RotationStep.FORGET: DROPPED,
    }
    return state.phase == phases.get(step, REISSUED)


def annotations_after(
    plan: RotationPlan, state: RotationState, step: RotationStep, request: str, now: float
) -> dict[str, str]:
    """The annotations of the Secret after a step, as far as the rotation has any. Empty ones are left out."""
    phases = {
        RotationStep.BEGIN: TRUSTED,
        RotationStep.PROMOTE: REISSUED,
        RotationStep.DROP: DROPPED if plan.forgotten_by else "",
        RotationStep.FORGET: "",
    }
    phase = phases.get(step, state.phase)
    since = int(now) if step in phases else int(state.phase_since)
    found = {
        keys.ROTATION_PHASE: phase,
        keys.ROTATION_PHASE_SINCE: str(since) if phase and since else "",
        keys.ROTATION_TOKEN: (request or state.token) if step is RotationStep.BEGIN else state.token,
        keys.ROTATION_SINCE: str(int(now)) if step is RotationStep.MARK else "",
    }
    return {key: value for key, value in found.items() if value}


def _given_up(state: RotationState, now: float, *, is_revoked: bool) -> frozenset[Consumer]:
    """The objects of the tenant that this phase does not wait for any longer."""
    if not state.phase_since:
        return frozenset()
    age_s = now - state.phase_since
    return frozenset(
        consumer
        for consumer, wait_s in TENANT_WAITS_S.items()
        if age_s >= (REVOKED_WAIT_S if is_revoked else wait_s)
    )


def _finish(
    plan: RotationPlan, state: RotationState, asked: Asked, now: float, held_s: float
) -> RotationDecision:
    end = state.since + held_s if state.since else 0.0
    if now < end:
        # The operator asks no consumer for as long as a day; it asks all at its end.
        return RotationDecision(RotationStep.WAIT, (plan.held,), end)
    waits = _lacking(plan.verifiers, asked, trusts=frozenset({state.current}))
    for group in plan.users:
        if waits:
            return RotationDecision(RotationStep.WAIT, waits)
        waits = _lacking(group, asked, forgets=state.previous)
        if waits and Consumer.STORED_SECRETS in group and asked.get(Consumer.STORED_SECRETS):
            return RotationDecision(RotationStep.REWRITE, waits)
    if waits:
        return RotationDecision(RotationStep.WAIT, waits)
    if held_s and not state.since:
        return RotationDecision(RotationStep.MARK)
    return RotationDecision(RotationStep.DROP)


def _forget(plan: RotationPlan, state: RotationState, asked: Asked) -> RotationDecision:
    """What is published comes last: API servers would publish it again."""
    published = Consumer.AUTHENTICATION
    others = tuple(each for each in plan.forgotten_by if each is not published)
    if waits := _trusting(others, asked, state.previous):
        return RotationDecision(RotationStep.WAIT, waits)
    if published in plan.forgotten_by and (waits := _trusting((published,), asked, state.previous)):
        return RotationDecision(RotationStep.CLEAN if asked.get(published) else RotationStep.WAIT, waits)
    return RotationDecision(RotationStep.FORGET)


def _trusting(consumers: tuple[Consumer, ...], asked: Asked, key: str) -> tuple[str, ...]:
    """Those that trust it still, or are not known not to."""
    return tuple(
        name
        for consumer in consumers
        for name, answer in _answers(consumer, asked)
        if answer is None or key in answer.trusts
    )


def _lacking(
    consumers: tuple[Consumer, ...], asked: Asked, *, trusts: frozenset[str] = frozenset(), forgets: str = ""
) -> tuple[str, ...]:
    """Those that are not there, or are not known to be."""
    return tuple(
        name
        for consumer in consumers
        for name, answer in _answers(consumer, asked)
        if answer is None or not trusts <= answer.trusts or (forgets and forgets in answer.uses)
    )


def _answers(consumer: Consumer, asked: Asked) -> Iterator[tuple[str, ConsumerAnswer | None]]:
    found = asked.get(consumer)
    if found is None:
        yield consumer, None
        return
    for name, answer in found.items():
        yield (f"{consumer}/{name}" if name else consumer), answer


def _key_id(secret: SecretFacts, key: str) -> str:
    facts = secret.certificates.get(key)
    return "" if facts is None else facts.key_id


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0
