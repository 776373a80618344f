# SPDX-License-Identifier: Apache-2.0
"""What is known of a control plane's keys outside of their Secrets, in the VirtualCluster's status.

Who deletes a Secret deletes its annotations with it. A request to rotate a key that was there stands at the
VirtualCluster still: it is no permission to replace the key when that is lost.
"""

from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.core.observed import Observed
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.virtual_cluster import KeyStatus
from tenant_operator.pki import catalog, rotation
from tenant_operator.pki.facts import SecretFacts, data_digest
from tenant_operator.pki.plan import KEY_SECRETS

# Of tokens, for each Secret. An older one could only be put back by hand.
MAX_TOKENS = 8


def key_statuses(
    observed: Observed, control_plane: ControlPlane, requests: Mapping[str, str]
) -> tuple[KeyStatus, ...]:
    """For the status: what it has, with what the Secrets have now, and the tokens of `requests` by what is to
    be rotated."""
    known = _known(observed)
    authorities = {spec.secret: spec.secret for spec in catalog.authorities(control_plane)}
    found: list[KeyStatus] = []
    for name, what in (KEY_SECRETS | authorities).items():
        live = observed.live("Secret", control_plane.key, name)
        before = known.get(name, KeyStatus(name))
        after = before if live is None else _with(before, live.secret, requests.get(what, ""))
        if after != KeyStatus(name):
            found.append(after)
    return tuple(found)


def spent_tokens(observed: Observed) -> Mapping[str, tuple[str, ...]]:
    """By the name of a Secret the tokens of the requests that were made while it was there."""
    return {name: tuple(each.tokens) for name, each in _known(observed).items()}


def _known(observed: Observed) -> Mapping[str, KeyStatus]:
    return {each.secret: each for each in observed.virtual_cluster.status.keys}


def _with(before: KeyStatus, secret: SecretFacts, request: str) -> KeyStatus:
    notes = secret.annotations
    last = notes.get(keys.ROTATION_TOKEN, "")
    if not secret.is_as_written or rotation.state_of(secret) is None:
        # Edited: what was known before may restore it. A request may be one to replace it.
        return msgspec.structs.replace(before, tokens=_tokens(before.tokens, last))
    return msgspec.structs.replace(
        before,
        tokens=_tokens(before.tokens, last, request),
        digest=data_digest(secret.digests),
        key_ids=notes.get(keys.KEY_IDS, ""),
        phase=notes.get(keys.ROTATION_PHASE, ""),
    )


def _tokens(before: list[str], *more: str) -> list[str]:
    """The last ones. What is in the list already stays where it is: a status is written for news alone."""
    found = before + [each for each in dict.fromkeys(more) if each and each not in before]
    return found[-MAX_TOKENS:]
