# SPDX-License-Identifier: Apache-2.0
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from devkit.kata.fake_runtime import FakeRuntime


@pytest_asyncio.fixture
async def runtime(short_dir: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(short_dir / "nri.sock") as running:
        yield running
