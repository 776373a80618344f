# SPDX-License-Identifier: Apache-2.0
import yaml

from syncer.networks.definition import NETWORKS_CRD
from tests.packages import ROOT


def test_it_is_the_one_that_is_shipped() -> None:
    shipped = (ROOT / "packaging/crds/networks-tenant.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(shipped) == NETWORKS_CRD
