# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vnagent.node import AgentNode
from tests.functional.vnagent.shop_and_bank import BANK, SHOP


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    """Two tenants with a pod each."""
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as running:
        yield running
