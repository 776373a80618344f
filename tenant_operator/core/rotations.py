# SPDX-License-Identifier: Apache-2.0
"""What rotates of a control plane, and whom a plan asks before the next step of a rotation."""

from collections.abc import Mapping, Sequence

import msgspec

from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder
from tenant_operator.core.probes import RotationProbe
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import RotationStatus
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import PLANS, Asked, Consumer, ConsumerAnswer

SUPPORTED = frozenset({names.SERVICE_ACCOUNT_KEYS})
"""By the names in requests. What is not here is made once, and stays."""

ASKED, VERSION = "asked", "version"
"""Keys of a probe's facts: all answers as JSON, and the version of the Secret that they are about."""

# An answer is about a moment; a consumer that starts later is not in it.
_FRESH_S = 30.0
# A mounted file arrives within 90 s.
_ASK_AGAIN_S = 3.0

_AnswerTable = dict[Consumer, dict[str, ConsumerAnswer | None] | None]
_DECODER = msgspec.json.Decoder(_AnswerTable)


def answers(observed: Observed, key: str) -> Mapping[str, Asked]:
    """What consumers answered to the last questions, by what rotates in this root namespace."""
    found: dict[str, Asked] = {}
    for what in SUPPORTED:
        probe = probe_of(observed, Ref("Secret", key, PLANS[what].secret), what)
        result = observed.probes.get(probe.name)
        if result is None or not result.is_ok or observed.now_s - result.at > _FRESH_S:
            continue
        if result.facts[VERSION] == probe.version:
            found[what] = _DECODER.decode(result.facts[ASKED])
    return found


def encode(asked: Asked) -> str:
    """As `answers` reads it. The same answers are the same text."""
    return msgspec.json.encode(asked, order="deterministic").decode()


def ask(builder: PlanBuilder, observed: Observed, waiting: Sequence[RotateSecret]) -> None:
    """Ask the consumers of what waits for answers, every few seconds."""
    for each in waiting:
        probe = probe_of(observed, each.secret, each.what)
        before = observed.probes.get(probe.name)
        is_known = before is not None and before.facts.get(VERSION) == probe.version
        if before is None or not is_known or observed.now_s - before.at >= _ASK_AGAIN_S:
            builder.probes.append(probe)
        builder.look_again(_ASK_AGAIN_S)


def probe_of(observed: Observed, secret: Ref, what: str) -> RotationProbe:
    """The question about this Secret as it is now."""
    live = observed.objects.get(secret)
    return RotationProbe(what, secret, "" if live is None else live.metadata.resource_version)


def sentence(rotation: RotationStatus) -> str:
    """For a condition's message."""
    waits = f", waits for {rotation.waits_for}" if rotation.waits_for else ""
    return f"Rotation of {rotation.what}: {rotation.phase}{waits}."
