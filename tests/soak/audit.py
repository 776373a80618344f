# SPDX-License-Identifier: Apache-2.0
"""Whether audit lines name the right tenant. Values in, verdict out."""

import json
from collections.abc import Iterable, Mapping

from devkit.audit_fields import AUDIT_FIELDS


def audit_problems(lines: Iterable[bytes], owners: Mapping[str, str]) -> list[str]:
    """What is wrong with these lines. `owners` are cluster keys by the names of pods that only they have."""
    found = []
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:
            found.append(f"an audit line is torn: {line[:200]!r}")
            continue
        if tuple(fields) != AUDIT_FIELDS:
            found.append(f"an audit line has the fields {', '.join(fields)}")
            continue
        owner = owners.get(fields["pod"] or "")
        if fields["decision"] == "allow" and owner is not None and owner != fields["tenant"]:
            found.append(f"the audit log has an allowed request of {fields['tenant']} for a pod of {owner}")
    return found
