# SPDX-License-Identifier: Apache-2.0
"""What is known of a control plane's keys outside of their Secrets, in the VirtualCluster's status.

Who deletes a Secret deletes its annotations with it. A request to rotate a key that was there stands at the
VirtualCluster still: it is no permission to replace the key when that is lost. Who restores a Secret may do
so without its annotations: it is known by the digest of its data.
"""

from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.core import lost_namespace
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.steps import Apply
from tenant_operator.life.backup import keys_ref
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import KeyStatus
from tenant_operator.pki import catalog, rotation
from tenant_operator.pki.facts import JUDGED_BY, SecretFacts, data_digest
from tenant_operator.pki.plan import KEY_SECRETS

# Of tokens, for each Secret. An older one could only be put back by hand.
MAX_TOKENS = 8


def key_statuses(
    observed: Observed, control_plane: ControlPlane, requests: Mapping[str, str]
) -> tuple[KeyStatus, ...]:
    """For the status: what it has, with what the Secrets have now, and the tokens of `requests` by what is to
    be rotated."""
    known, older = _known(observed), older_keys(observed, control_plane, requests)
    authorities = {spec.secret: spec.secret for spec in catalog.authorities(control_plane)}
    found: list[KeyStatus] = []
    for name, what in (KEY_SECRETS | authorities).items():
        live = observed.live("Secret", control_plane.key, name)
        before = known.get(name, KeyStatus(name))
        if live is None:
            after = before
        else:
            after = _with(before, live.secret, requests.get(what, ""), is_older=name in older)
        if after != KeyStatus(name):
            found.append(after)
    return tuple(found)


def spent_tokens(observed: Observed) -> Mapping[str, tuple[str, ...]]:
    """By the name of a Secret the tokens of the requests that were made while it was there."""
    return {name: tuple(each.tokens) for name, each in _known(observed).items()}


def older_keys(
    observed: Observed, control_plane: ControlPlane, requests: Mapping[str, str]
) -> frozenset[str]:
    """Names of Secrets that were restored from before a rotation: the key in use last is not among theirs."""
    if lost_namespace.is_given_up(observed, control_plane):
        return frozenset()
    known = _known(observed)
    return frozenset(
        name
        for name, what in KEY_SECRETS.items()
        if (live := observed.live("Secret", control_plane.key, name)) is not None
        and name in known
        and _is_older(known[name], live.secret, requests.get(what, ""))
    )


def known_annotations(observed: Observed, control_plane: ControlPlane) -> Mapping[Ref, Mapping[str, str]]:
    """The annotations of Secrets that have lost them, and have the data that is known: of the status, or of a
    copy that a backup has."""
    key, known = control_plane.key, _known(observed)
    found: dict[Ref, Mapping[str, str]] = {}
    for name in (*KEY_SECRETS, *(spec.secret for spec in catalog.authorities(control_plane))):
        live = observed.live("Secret", key, name)
        if live is None or _is_valid(live.secret):
            continue
        candidates = [_annotations(known[name])] if name in known else []
        if name == names.ENCRYPTION_CONFIG:
            candidates += [_judged(copy) for copy in _copies(observed, control_plane).values()]
        digest = data_digest(live.digests)
        for notes in candidates:
            is_whole = name not in KEY_SECRETS or notes.get(keys.KEY_IDS)
            if is_whole and notes.get(keys.DATA_DIGEST) == digest:
                found[Ref("Secret", key, name)] = notes
                break
    return found


def annotated(observed: Observed, control_plane: ControlPlane, ref: Ref, notes: Mapping[str, str]) -> Apply:
    """The step that gives them back. It makes no Secret, and is of the one that was judged."""
    metadata = {
        "name": ref.name,
        "namespace": ref.namespace,
        "resourceVersion": observed.objects[ref].metadata.resource_version,
        "labels": control_plane.labels,
        "annotations": dict(notes),
    }
    return Apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})


def copy_of_keys(observed: Observed, control_plane: ControlPlane) -> str:
    """The name of a Secret with the keys of encryption as they were last, which a backup has kept."""
    last = _known(observed).get(names.ENCRYPTION_CONFIG, KeyStatus("")).digest
    copies = _copies(observed, control_plane)
    return next((name for name, live in copies.items() if last in ("", data_digest(live.digests))), "")


def _copies(observed: Observed, control_plane: ControlPlane) -> Mapping[str, LiveObject]:
    """Those of the last backups first."""
    refs = [keys_ref(control_plane, each.name) for each in reversed(observed.virtual_cluster.status.backups)]
    return {ref.name: observed.objects[ref] for ref in refs if ref in observed.objects}


def _judged(live: LiveObject) -> Mapping[str, str]:
    notes = live.metadata.annotations
    return {key: notes[key] for key in JUDGED_BY if key in notes} if _is_valid(live.secret) else {}


def _annotations(known: KeyStatus) -> Mapping[str, str]:
    values = (known.digest, known.key_ids, known.phase, known.token)
    return {key: value for key, value in zip(JUDGED_BY, values, strict=True) if value}


def _is_valid(secret: SecretFacts) -> bool:
    """Whether it is as it was written, and it is known which key is in use."""
    return secret.is_as_written and rotation.state_of(secret) is not None


def _known(observed: Observed) -> Mapping[str, KeyStatus]:
    return {each.secret: each for each in observed.virtual_cluster.status.keys}


def _with(before: KeyStatus, secret: SecretFacts, request: str, *, is_older: bool) -> KeyStatus:
    notes = secret.annotations
    last = notes.get(keys.ROTATION_TOKEN, "")
    if is_older or not _is_valid(secret):
        # Restored or edited: what was known before may mend it. A request may be one to replace it.
        return msgspec.structs.replace(before, tokens=_tokens(before.tokens, last))
    return msgspec.structs.replace(
        before,
        tokens=_tokens(before.tokens, last, request),
        digest=data_digest(secret.digests),
        key_ids=notes.get(keys.KEY_IDS, ""),
        phase=notes.get(keys.ROTATION_PHASE, ""),
        token=last,
    )


def _is_older(before: KeyStatus, secret: SecretFacts, request: str) -> bool:
    """Whether the key in use last is not among these, though no rotation that is asked for has dropped it."""
    notes = secret.annotations
    last, *_ = before.key_ids.split(",")
    if not last or not _is_valid(secret) or last in notes.get(keys.KEY_IDS, "").split(","):
        return False
    return not request or notes.get(keys.ROTATION_TOKEN, "") != request


def _tokens(before: list[str], *more: str) -> list[str]:
    """The last ones. What is in the list already stays where it is: a status is written for news alone."""
    found = before + [each for each in dict.fromkeys(more) if each and each not in before]
    return found[-MAX_TOKENS:]
