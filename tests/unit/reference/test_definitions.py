# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packages import ROOT
from tests.reference import definitions
from tests.reference.definitions import MadeDefinition

CRDS = ROOT / "packaging/crds"
ONE = MadeDefinition(Path("b.yaml"), Path("a.yaml"), "# B.\n", "  scope: A\n", "  scope: B\n")


def shipped(name: str) -> Any:
    return yaml.safe_load((CRDS / name).read_text(encoding="utf-8"))


def test_made_definitions_are_current() -> None:
    assert definitions.stale() == [], "run make reference"


def test_vc_manager_has_no_endpoint_of_the_status() -> None:
    ours, theirs = shipped("virtualclusters.yaml"), shipped("virtualclusters-vc-manager.yaml")
    assert ours["spec"]["versions"][0].pop("subresources") == {"status": {}}
    assert ours == theirs


def test_networks_differ_in_the_scope_alone() -> None:
    of_super, of_tenants = shipped("networks.yaml"), shipped("networks-tenant.yaml")
    assert (of_super["spec"].pop("scope"), of_tenants["spec"].pop("scope")) == ("Namespaced", "Cluster")
    assert of_super == of_tenants


def test_all_but_the_head_and_the_difference_is_the_source() -> None:
    source = "# SPDX\n#\n# apiVersion: of A.\napiVersion: v1\nspec: # why\n  scope: A\n  more: {}\n"
    assert definitions.text(ONE, source) == (
        "# SPDX-License-Identifier: Apache-2.0\n#\n# B.\n#\n"
        "# Made of a.yaml by `make reference`; do not edit.\n"
        "apiVersion: v1\nspec: # why\n  scope: B\n  more: {}\n"
    )


@pytest.mark.parametrize("body", ["", "  scope: C\n", "  scope: A\n  scope: A\n"])
def test_a_difference_without_its_one_place_is_an_error(body: str) -> None:
    with pytest.raises(ValueError, match="not one place"):
        definitions.text(ONE, f"#\napiVersion: v1\n{body}")
