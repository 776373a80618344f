# SPDX-License-Identifier: Apache-2.0
"""Ingresses (reference 8: ingress dws, patrol and uws)."""

from syncer.core.plan import Side
from syncer.kinds.ingress import SYNC
from tests.unit.syncer.kinds.objects import brief, patched, plan, super_object, tenant_object

SPEC = {"ingressClassName": "a", "rules": [{"host": "a.example.com"}]}


def test_status_comes_up_and_changes_go_down() -> None:
    status = {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}
    own = tenant_object(
        "Ingress", spec={**SPEC, "rules": [{"host": "b.example.com"}]}, status={"loadBalancer": {}}
    )
    result = plan(SYNC, own, super_object("Ingress", spec=SPEC, status=status))
    assert patched(result) == {"spec": {"rules": [{"host": "b.example.com"}]}}
    assert patched(result, Side.TENANT, "status") == {"status": status}


def test_what_is_in_sync_is_left_alone() -> None:
    own = tenant_object("Ingress", spec=SPEC, status={"loadBalancer": {}})
    assert brief(plan(SYNC, own, super_object("Ingress", spec=SPEC))) == []
