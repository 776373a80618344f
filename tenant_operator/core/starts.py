# SPDX-License-Identifier: Apache-2.0
"""How many control planes start at a time. Pure.

Programs that start together share the nodes' processors, and give up after a time of their own: an API server
that finds no store ends after 20 s, a controller manager without an API server after 10 s. Twenty at once on
two cores start each other's programs again and again. So a tenant that is made or woken takes a place first,
and gives it back once its control plane is available.
"""

from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.workloads import readiness_of
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane

# Who waits is planned again when a place is free. This is for a lost event alone.
_WAITS_S = 30.0


def may_start(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, settings: Settings
) -> bool:
    """Whether its workloads may be applied now: they run already, or there is a place for them."""
    server = observed.live("Deployment", control_plane.key, names.API_SERVER)
    if readiness_of(names.API_SERVER, server).desired:
        return True
    if not observed.may_start:
        builder.waits_to_start = True
        builder.look_again(_WAITS_S)
        builder.wait(
            f"a place to start: {settings.max_starting} control planes start at a time (maxStarting)"
        )
        return False
    builder.is_starting = True
    return True
