# SPDX-License-Identifier: Apache-2.0
"""Connects tokens of pods with the caches, and tells tenants of those that cannot be renewed."""

from collections.abc import Callable, Generator, Iterator

from daemonkit import logs
from daemonkit.fairness.steps import WorkStep
from daemonkit.kube.client import Requester
from daemonkit.kube.resources import Key
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core.plan import Conflict, IssueTokens, Side, Wait
from syncer.core.write_rate import Charge
from syncer.tenant.session import TenantSession
from syncer.tokens.controller import TokenIssuer
from syncer.tokens.documents import PodTokens
from syncer.tokens.token_requests import NotIssuedError, RenewalFailure
from syncer.work.reports import TenantReports
from tenancy import keys

_SECRET = "Secret"  # noqa: S105 - the name of a kind
_LABEL = keys.POD_TOKENS.encode()
# Secrets that are read in one step, of up to 45 us each.
_READ_AT_ONCE = 100
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

    def attach(self, session: TenantSession) -> Generator[None, None, None]:
        """A tenant is synced: take over in steps the tokens that its pods have."""
        key = session.tenant.key
        self._sessions[key] = session

        def may_write(super_namespace: str, name: str, size_bytes: int) -> Charge | None:
            # However small a patch is, etcd has the whole object once more.
            there = self._super.objects(_SECRET).get((super_namespace, name))
            return session.try_write_tokens(size_bytes + (0 if there is None else there.json_bytes))

        self.issuer.add_tenant(
            session.tenant, session.client, session.super_client, may_write, session.account.run
        )
        step = WorkStep(_READ_AT_ONCE)
        for where in self._own_secrets(session):
            secret = None if where is None else self._super.objects(_SECRET).get(where)
            has_tokens = secret is not None and _LABEL in secret.body
            if secret is not None and has_tokens:
                self.issuer.secret_seen(secret.load())
            if step.count(secret.json_bytes if secret is not None and has_tokens else 0):
                yield
                if self._sessions.get(key) is not session:
                    return

    def _own_secrets(self, session: TenantSession) -> Iterator[Key | None]:
        """The tenant's super Secrets; None for each of its super namespaces."""
        for namespace, _ in self._super.owners.of_key(session.tenant.key):
            yield None
            # An earlier tenant with this key may have left some: who asks for a token learns of its pod.
            if session.namespaces.owns(namespace):
                for name in list(self._super.names_in(_SECRET, namespace)):
                    yield namespace, name

    def remove_orphans(self, session: TenantSession) -> Generator[None, None, None]:
        """Delete in steps the Secrets of tokens whose super pod is gone, or was never created.

        None whose super pod cannot be read: which tokens that mounts is not known.
        """

        def may_have_pod(pod: PodTokens) -> bool:
            item = "Pod", pod.namespace, pod.name
            if session.caches.unreadable_on(Side.SUPER, item) is not None:
                return True
            found = session.caches.of_super(item)
            return found is not None and found.tenant_uid == pod.uid

        state = session.caches.state_of("Pod")
        yield from self.issuer.remove_orphans(session.tenant.key, may_have_pod, state)

    def detach(self, session: TenantSession) -> Generator[None, None, None]:
        """A tenant is not synced any more: its tokens are forgotten at once, and what was held in steps."""
        self._sessions.pop(session.tenant.key, None)
        return self.issuer.remove_tenant(session.tenant.key)

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
