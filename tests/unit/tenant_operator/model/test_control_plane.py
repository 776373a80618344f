# SPDX-License-Identifier: Apache-2.0
"""What follows from a control plane's values."""

from tenant_operator.model.control_plane import FIRST_USER_ID, USER_IDS
from tests.unit.tenant_operator.control_planes import control_plane


def test_each_tenant_has_a_user_of_its_own() -> None:
    """Of the key alone: a restart of the operator, or another class, restarts no pod."""
    one = control_plane()
    assert one.user_id == control_plane(replicas=3, uid="other", release=one.release).user_id
    found = [control_plane(key=f"tenants-70b001-{number}").user_id for number in range(2_000)]
    assert len(set(found)) == len(found)
    assert FIRST_USER_ID <= min(found) < max(found) < FIRST_USER_ID + USER_IDS < 2**31
