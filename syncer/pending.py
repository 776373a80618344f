# SPDX-License-Identifier: Apache-2.0
"""TEMPORARY."""

from syncer.core.plan import IssueTokens
from syncer.session import TenantSession


class NoNodes:
    async def ensure(self, session: TenantSession, node: str) -> None: ...


class NoTokens:
    async def issue(self, session: TenantSession, action: IssueTokens) -> None: ...
