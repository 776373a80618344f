# SPDX-License-Identifier: Apache-2.0
"""Which certificates API servers show their clients: a Secret says only what they should show. Pure."""

import base64
import binascii

from tenant_operator.core.observed import Observed
from tenant_operator.core.probes import ServedProbe
from tenant_operator.model import names
from tenant_operator.pki.facts import CertificateFacts, facts_of

# A certificate in use changes with its Secret, or its pod.
_DAY_S = 86400.0
# While one of them shows another than the Secret has: a kubelet brings it within 90 s.
_RENEWED_S = 300.0


def shown(observed: Observed) -> dict[str, CertificateFacts]:
    """What each showed when it was last asked, as `SECRET/POD`."""
    probe = observed.probes.get(ServedProbe("").name)
    found: dict[str, CertificateFacts] = {}
    for pod, text in () if probe is None else probe.facts.items():
        try:
            found[f"{names.API_SERVER_SERVING}/{pod}"] = facts_of(base64.b64decode(text))
        except (ValueError, binascii.Error):
            continue  # whatever answers there, it is no certificate of ours
    return found


def asked_after_s(observed: Observed, key: str) -> float:
    """How old an answer may get."""
    live = observed.live("Secret", key, names.API_SERVER_SERVING)
    facts = None if live is None else live.secret.certificate
    if facts is None:
        return _DAY_S
    newest = facts.spki_sha256
    return _DAY_S if all(each.spki_sha256 == newest for each in shown(observed).values()) else _RENEWED_S
