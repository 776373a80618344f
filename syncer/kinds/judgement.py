# SPDX-License-Identifier: Apache-2.0
"""What is judged of every kind, before anything is translated: what its author wrote. Pure.

The answer is complete: what does not go down is refused, or reported as changed, or listed in
docs/spec/sync-policy.md as what stays in a tenant.
"""

import itertools

from syncer.core.objects import Object
from syncer.core.plan import Change, Refusal
from syncer.core.view import View
from syncer.kinds.metadata import goes_up, is_closed, rules_of
from syncer.policy import metadata_keys, unknown_fields
from syncer.policy.refusal_list import MAX_REFUSALS

# Their labels go down under another key where they may not keep their own: selectors find them.
_SELECTED = ("Pod", "Namespace")


def refusals(kind: str, tenant: Object, view: View) -> tuple[Refusal, ...]:
    """What no object of this kind may have."""
    unknown = unknown_fields.refusals(kind, tenant, view.policy.fields.allowed)
    return unknown + metadata_keys.refusals(tenant, rules_of(kind, tenant, view), _passed_over(view))


def changes(kind: str, tenant: Object, view: View) -> tuple[Change, ...]:
    """What of an object that goes down is reported to its author: at most MAX_REFUSALS."""
    found = metadata_keys.changes(
        tenant, rules_of(kind, tenant, view), _passed_over(view), renames_labels=kind in _SELECTED
    )
    return tuple(itertools.islice(found, MAX_REFUSALS))


def _passed_over(view: View) -> metadata_keys.IsPassedOver:
    return lambda key: is_closed(key, view.tenant) or goes_up(key, view.tenant)
