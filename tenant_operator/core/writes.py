# SPDX-License-Identifier: Apache-2.0
"""Which of the desired objects are to be written."""

from collections.abc import Iterable

from tenant_operator.core.live import LiveObject, is_as_desired
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder
from tenant_operator.core.steps import Apply
from tenant_operator.model.objects import Object, ref_of


def apply_if_needed(builder: PlanBuilder, live: LiveObject | None, manifest: Object) -> None:
    """Apply an object unless it is as it should be."""
    if live is None or not is_as_desired(live, manifest):
        builder.steps.append(Apply(manifest))


def apply_all(builder: PlanBuilder, observed: Observed, manifests: Iterable[Object]) -> None:
    """Apply those that are not as they should be."""
    for each in manifests:
        apply_if_needed(builder, observed.objects.get(ref_of(each)), each)
