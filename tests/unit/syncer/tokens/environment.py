# SPDX-License-Identifier: Apache-2.0
"""A tenant and a super cluster on fakes, and the tokens of its pods."""

import asyncio
import base64
from collections.abc import Callable

from daemonkit.kube.resources import SECRETS
from daemonkit.tasks import Tasks
from devkit.kube.storage import StatusError
from devkit.syncer.fake_control_plane import FakeControlPlane
from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.plan import Conflict, IssueTokens, TokenRequest, Wait
from syncer.tokens.controller import TokenIssuer
from syncer.tokens.documents import PodTokens
from syncer.tokens.token_requests import NotIssuedError
from tests.steps import finish

NAMESPACE = "vcs-7aad2b-tenant-00-default"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/builder/token"
EPOCH_S = 1_764_075_600.0
MARK = "SECRET-TEXT"


def action(name: str = "web-0", *, audiences: tuple[str, ...] = ("",), seconds: int = 3600) -> IssueTokens:
    tokens = tuple(TokenRequest(f"token-{n}", each, seconds) for n, each in enumerate(audiences))
    return IssueTokens("default", name, f"uid-{name}", "builder", f"{name}-token", tokens)


class TokensEnvironment:
    """A tenant and a super cluster on fakes. Tokens are numbered; `refusal` is how the tenant answers."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        """Tasks that failed: in a daemon each ends it."""
        self.tasks = Tasks("test", on_failure=lambda name, _: self.failed.append(name))
        self.tenant = FakeControlPlane(on_token=self._issue)
        self.cluster = FakeControlPlane()
        self.reports: list[tuple[str, Wait | None]] = []
        self.refusal: Callable[[], Exception | None] | None = None
        self.issued = 0
        self.granted_s: int | None = None
        self.is_owned = True
        self.skew_s = 0.0
        self.issuer = self.restarted()

    def restarted(self) -> TokenIssuer:
        """Another process, which knows nothing yet."""
        self.issuer = TokenIssuer(
            self.cluster,
            lambda key, namespace: self.is_owned and (key, namespace) == (TENANT.key, NAMESPACE),
            self._report,
            self.tasks,
            lambda: EPOCH_S + asyncio.get_running_loop().time() + self.skew_s,
            lambda: 1.0,
        )
        self.issuer.add_tenant(TENANT, self.tenant)
        return self.issuer

    async def _report(self, key: str, pod: PodTokens, error: NotIssuedError | None) -> None:
        assert key == TENANT.key
        self.reports.append((pod.name, None if error is None else error.wait))

    def _issue(self, path: str, body: Object) -> Object:
        assert path == TOKEN
        if self.refusal is not None and (refused := self.refusal()) is not None:
            raise refused
        self.issued += 1
        seconds = self.granted_s or body["spec"]["expirationSeconds"]
        return body | {
            "spec": body["spec"] | {"expirationSeconds": seconds},
            "status": {"token": f"{MARK}.{self.issued}", "expirationTimestamp": "2020-01-01T00:00:00Z"},
        }

    async def __aenter__(self) -> "TokensEnvironment":
        self.tasks.spawn(self.issuer.run(), "timer")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.tasks.close(1.0) == ()

    async def issue(self, asked: IssueTokens) -> Wait | Conflict | None:
        return await self.issuer.issue(TENANT.key, asked, NAMESPACE)

    def remove_orphans(self, *pod_uids: str) -> int:
        """With these pods in the super cluster."""
        return finish(self.issuer.remove_orphans(TENANT.key, lambda pod: pod.uid in pod_uids))

    def secret(self, name: str = "web-0") -> Object | None:
        try:
            return self.cluster.storage.get(SECRETS, NAMESPACE, f"{name}-token")
        except StatusError:
            return None

    def tokens(self, name: str = "web-0") -> dict[str, str]:
        found = self.secret(name)
        assert found is not None
        return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}

    def take_requests(self) -> list[str]:
        found = [*self.tenant.requests, *self.cluster.requests]
        self.tenant.requests.clear()
        self.cluster.requests.clear()
        return found
