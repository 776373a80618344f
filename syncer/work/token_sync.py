# SPDX-License-Identifier: Apache-2.0
"""Connects tokens of pods with the caches, and tells tenants of those that cannot be renewed."""

from collections.abc import Callable

from daemonkit import logs
from daemonkit.kube.client import Requester
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core.plan import Conflict, IssueTokens, Wait
from syncer.tenant.session import TenantSession
from syncer.tokens.controller import TokenIssuer
from syncer.tokens.documents import PodTokens
from syncer.tokens.token_requests import NotIssuedError, RenewalFailure
from syncer.work.reports import TenantReports
from tenancy import keys

_SECRET = "Secret"  # noqa: S105 - the name of a kind
_LABEL = keys.POD_TOKENS.encode()
_log = logs.get(__name__)


class TokenSync:
    """The engine's port `Tokens`."""

    def __init__(
        self,
        client: Requester,
        super_cluster: SuperCaches,
        reports: TenantReports,
        owns: Callable[[str, str], bool],
        tasks: Tasks,
        wall: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._super = super_cluster
        self._reports = reports
        self._sessions: dict[str, TenantSession] = {}
        self.issuer = TokenIssuer(client, owns, self._report, tasks, wall, jitter)

    def start(self, tasks: Tasks) -> None:
        tasks.spawn(self.issuer.run(), "tokens")

    def attach(self, session: TenantSession) -> None:
        """A tenant is synced: take over the tokens that its pods have, and remove those without a pod."""
        key = session.tenant.key
        self._sessions[key] = session
        self.issuer.add_tenant(session.tenant, session.client, session.super_client)
        secrets = self._super.objects(_SECRET)
        mine = (
            secrets[namespace, name]
            for namespace, _ in self._super.owned_namespaces(key)
            # An earlier tenant with this key may have left some: who asks for a token learns of its pod.
            if session.namespaces.owns(namespace)
            for name in self._super.names_in(_SECRET, namespace)
        )
        found = [each.load() for each in mine if _LABEL in each.body]
        if not found:
            return
        for secret in found:
            self.issuer.secret_seen(secret)
        self.remove_orphans(session)

    def remove_orphans(self, session: TenantSession) -> None:
        """Delete the Secrets of tokens whose super pod is gone, or was never created.

        None while one of the tenant's super pods cannot be read: whose tokens it mounts is not known.
        """
        unreadable = self._super.reflectors["Pod"].decode_failures
        if any(session.namespaces.owns(namespace) for namespace, _ in unreadable):
            return
        pod_uids = {pod.tenant_uid for pod in session.caches.super_pods()}
        self.issuer.remove_orphans(session.tenant.key, pod_uids)

    def detach(self, session: TenantSession) -> None:
        self._sessions.pop(session.tenant.key, None)
        self.issuer.remove_tenant(session.tenant.key)

    def secret_changed(self, secret: CachedObject, *, is_deleted: bool) -> None:
        """A super Secret of a tenant changed; most have no tokens."""
        if _LABEL in secret.body:
            note = self.issuer.secret_gone if is_deleted else self.issuer.secret_seen
            note(secret.load())

    def pod_gone(self, session: TenantSession, pod: CachedObject) -> None:
        """A super pod of a tenant was deleted."""
        self.issuer.pod_gone(session.tenant.key, pod.tenant_uid)

    async def issue(self, session: TenantSession, action: IssueTokens) -> Wait | Conflict | None:
        namespace = session.namespaces.owned(action.namespace)
        if namespace is None:
            return Wait("NamespaceNotSynced", f"namespace {action.namespace} is not in the super cluster yet")
        return await self.issuer.issue(session.tenant.key, action, namespace)

    async def _report(self, key: str, pod: PodTokens, error: NotIssuedError | None) -> None:
        where = f"{pod.namespace}/{pod.name}"
        if error is None:
            _log.info("tokens of a pod were renewed", tenant=key, pod=where)
        else:
            _log.warning(
                "tokens of a pod cannot be renewed", tenant=key, pod=where, reason=error.wait.message
            )
            if error.cause is RenewalFailure.TENANT_UNREACHABLE:
                return  # nor does it answer about an Event
        session = self._sessions.get(key)
        if session is not None:
            problem = "" if error is None else error.wait.message
            await self._reports.renewal(session, ("Pod", pod.namespace, pod.name), pod.uid, problem)
