# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from tenancy.tenant import Role, Tenant


def test_a_tenant_is_a_value() -> None:
    one = Tenant("a", (b"der",), {"00" * 32: Role.METRICS})
    assert one == Tenant("a", (b"der",), {"00" * 32: Role("metrics")}, "cluster.local")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.key = "b"  # type: ignore[misc]  # what must fail is the point


def test_the_roles_are_those_of_the_file_format() -> None:
    assert [role.value for role in Role] == ["apiserver", "metrics"]
