# SPDX-License-Identifier: Apache-2.0
"""Carries steps out, in their order, up to the first that fails. The only place where keys are made."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.kubeconfig import Access
from daemonkit.remedies import Cause
from tenancy import keys
from tenant_operator.core import rotations
from tenant_operator.core.observed import Failed, Observed
from tenant_operator.core.steps import (
    AddEncryptionKeys,
    Apply,
    ClaimNamespace,
    CopyKubeconfig,
    CopySecret,
    DropDatabase,
    EndPods,
    GenerateKeys,
    IssueAuthority,
    IssueLeaf,
    MakeDatabase,
    OperatorStep,
    PatchCluster,
    Remove,
    Rotate,
    SettleDefaults,
)
from tenant_operator.defaults.inventory import INVENTORY_KEY, write_inventory
from tenant_operator.defaults.record import RECORD_KEY, next_record, write_record
from tenant_operator.defaults.webhooks import blocking_webhook, webhook_problem
from tenant_operator.edge import postgresql, tenant_client
from tenant_operator.edge.authority_keys import read_authority, unpublish
from tenant_operator.edge.databases import StatementRunner, drop_database, make_database
from tenant_operator.edge.imported_source import secret_value
from tenant_operator.edge.postgresql import PostgresqlError
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.stored_secrets import rewrite
from tenant_operator.edge.tenant_api import TenantApi
from tenant_operator.edge.tenant_client import TenantClientError
from tenant_operator.edge.tenant_defaults import apply_defaults, printable
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.life.requests import time_of
from tenant_operator.life.store_keys import CONFIG, with_keys_of
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model import names
from tenant_operator.model.objects import OPERATOR, Object, Ref, ref_of
from tenant_operator.pki import issuing, rotating
from tenant_operator.pki.facts import JUDGED_BY, digest_of
from tenant_operator.pki.issuing import IssuedPair
from tenant_operator.pki.rotation import PLANS, RotationStep
from tenant_operator.provisioners.imported.adoption import kubeconfig_copy

Found = TypeVar("Found")

# Of a step of a rotation in a tenant: two requests, or as many as there is time for.
IN_TENANT_TIMEOUT_S = 70.0

_log = logs.get(__name__)


class StepFailedError(Exception):
    """A step that cannot be carried out now; reason and message are for a condition, `cause` is for the
    metric."""

    def __init__(self, reason: str, message: str, cause: str = "refused") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.cause = cause


class Executor:
    """`wall` is in seconds since 1970."""

    def __init__(
        self,
        super_cluster: SuperClusterWriter,
        metrics: OperatorMetrics,
        wall: Callable[[], float],
        open_tenant: Callable[[Access], GatedClient],
        open_import: Callable[[Access], GatedClient],
        run_statements: StatementRunner = postgresql.run,
    ) -> None:
        self._super = super_cluster
        self._metrics = metrics
        self._wall = wall
        self._open_tenant = open_tenant
        self._open_import = open_import
        self._run_statements = run_statements

    async def carry_out(
        self, observed: Observed, steps: Sequence[OperatorStep]
    ) -> tuple[tuple[Failed, ...], dict[Ref, str]]:
        """Returns the step that failed, if one did, and the versions of all objects that were written."""
        written: dict[Ref, str] = {}
        authorities: dict[Ref, IssuedPair] = {}
        cluster = observed.virtual_cluster.metadata
        here = Ref("VirtualCluster", cluster.namespace, cluster.name)
        for step in steps:
            ref = _ref_of(step, here)
            try:
                found = await self._carry_out(step, here, authorities)
            except (StepFailedError, ApiError, UnreachableError) as error:
                self._metrics.failures.labels(_cause(error)).inc()
                _log.warning(
                    "a step failed, trying again later",
                    virtual_cluster=f"{cluster.namespace}/{cluster.name}",
                    step=type(step).__name__,
                    object=ref,
                    reason=error,
                )
                return (Failed(ref, _reason(error), str(error)),), written
            self._metrics.steps.labels(type(step).__name__).inc()
            if found is not None and ref != here:
                written[ref] = found["metadata"].get("resourceVersion", "")
        return (), written

    async def _carry_out(
        self, step: OperatorStep, here: Ref, authorities: dict[Ref, IssuedPair]
    ) -> Object | None:
        match step:
            case Apply(manifest):
                return await self._super.apply(manifest)
            case ClaimNamespace(manifest):
                return await self._claim(manifest)
            case Remove(ref, uid):
                await self._super.remove(ref, uid)
                return None
            case EndPods(namespace, ended_before):
                await self._super.end_pods(namespace, ended_before)
                return None
            case PatchCluster(patch):
                return await self._super.patch(here, patch)
            case IssueAuthority():
                return await self._issue_authority(step, authorities)
            case IssueLeaf():
                return await self._issue_leaf(step, authorities)
            case GenerateKeys():
                return await self._write(_generated(step), step.version)
            case Rotate():
                return await self._rotate(step, here, authorities)
            case SettleDefaults():
                return await self._settle_defaults(step)
            case CopyKubeconfig():
                return await self._copy_kubeconfig(step)
            case AddEncryptionKeys():
                return await self._add_encryption_keys(step)
            case CopySecret():
                return await self._copy_secret(step)
            case MakeDatabase() | DropDatabase():
                return await self._change_database(step)

    async def _claim(self, manifest: Object) -> Object:
        """Make the root namespace. Where one is there, it must be this VirtualCluster's."""
        made = await self._super.create(manifest)
        if made is not None:
            return made
        ref = ref_of(manifest)
        found = await self._super.get(ref)
        wanted = manifest["metadata"]["annotations"]
        annotations = {} if found is None else found["metadata"].get("annotations") or {}
        is_root = annotations.get(keys.VC_ROOT_NAMESPACE) == "true"
        if not (is_root and annotations.get(keys.VC_UID) == wanted[keys.VC_UID]):
            raise StepFailedError(
                "RootNamespaceTaken",
                f"Namespace {ref.name} exists and is not of this VirtualCluster; delete one of the two",
            )
        # A user who knows the UID could have prepared it, with rights in it for themselves.
        entries = (found or {}).get("metadata", {}).get("managedFields") or ()
        if not any(each.get("manager") == OPERATOR for each in entries):
            raise StepFailedError(
                "RootNamespaceTaken",
                f"Namespace {ref.name} exists and vc-operator has not made it; delete it: it is made anew",
            )
        return await self._super.apply(manifest)

    async def _issue_authority(
        self, step: IssueAuthority, authorities: dict[Ref, IssuedPair]
    ) -> Object | None:
        pair = issuing.new_authority(step.spec, self._wall())
        data = issuing.authority_data(pair)
        manifest = issuing.secret_of(step.namespace, step.spec.secret, data, step.labels, step.annotations)
        made = await self._write(manifest, step.version)
        if made is not None:
            authorities[ref_of(manifest)] = pair
        return made

    async def _issue_leaf(self, step: IssueLeaf, authorities: dict[Ref, IssuedPair]) -> Object | None:
        authority = authorities.get(step.authority)
        if authority is None:
            authority = authorities[step.authority] = await self._authority(step.authority)
        spec = step.spec
        pair = issuing.issue_pair(spec, authority, self._wall())
        manifest = issuing.secret_of(
            spec.namespace,
            spec.secret,
            issuing.leaf_data(spec, pair, step.bundle_pem),
            step.labels,
            step.annotations,
        )
        return await self._write(manifest, step.version)

    async def _write(self, manifest: Object, version: str) -> Object | None:
        """Create it, or replace this version of it; None if this VirtualCluster has it meanwhile."""
        if not version:
            made = await self._super.create(manifest)
            if made is None:
                await self._check_owner(manifest)
            return made
        manifest["metadata"]["resourceVersion"] = version
        return await self._super.replace(manifest)

    async def _check_owner(self, manifest: Object) -> None:
        """An object of that name is there, and the watch does not show it: it may be another's."""
        ref = ref_of(manifest)
        found = await self._super.get(ref)
        wanted = {name: manifest["metadata"]["labels"][name] for name in (keys.MANAGED_BY, keys.VC_UID)}
        labels = {} if found is None else found["metadata"].get("labels") or {}
        if found is not None and any(labels.get(name) != value for name, value in wanted.items()):
            selector = ",".join(f"{name}={value}" for name, value in wanted.items())
            raise StepFailedError(
                "NameTaken",
                f"it exists without labels {selector}; delete or rename it, or, if the labels were removed, "
                f"put them back: kubectl label {ref.kind.lower()} {ref.name} -n {ref.namespace} "
                f"{selector.replace(',', ' ')} --overwrite",
            )

    async def _rotate(self, step: Rotate, here: Ref, authorities: dict[Ref, IssuedPair]) -> Object | None:
        """The Secret's data is read for the step, and written at that version."""
        rotation = step.rotation
        ref = rotation.secret
        found = await self._super.get(ref)
        if found is None:
            raise StepFailedError("SecretMissing", f"{ref} was deleted meanwhile", "conflict")
        if rotation.step is RotationStep.CLEAN:
            await self._unpublish(ref, found, here)
            return found
        progress = await self._rewrite(step, found, here) if rotation.step is RotationStep.REWRITE else ""
        made = rotating.rotate(
            PLANS[rotation.what],
            rotation.step,
            _data(found),
            found["metadata"].get("annotations") or {},
            self._wall(),
            request=rotation.request,
            spec=rotation.spec,
            progress=progress,
        )
        # What it signs by is another one from now on.
        authorities.pop(ref, None)
        if made is None:
            return found
        data, annotations = made
        manifest = issuing.secret_of(ref.namespace, ref.name, data, step.labels, annotations)
        return await self._write(manifest, found["metadata"]["resourceVersion"])

    async def _unpublish(self, ref: Ref, authority: Object, here: Ref) -> None:
        """Aggregated API servers of the tenant trust the former authority no longer."""
        try:
            former = read_authority(authority, None)
        except (KeyError, ValueError):
            text = f"{ref} has a certificate that cannot be read; restore it from a backup"
            raise StepFailedError("AuthorityMissing", text) from None
        await self._in_tenant(ref.namespace, here, lambda client: unpublish(client, former))

    async def _rewrite(self, step: Rotate, config: Object, here: Ref) -> str:
        """A part of the tenant's Secrets, and how far that is."""
        annotations = config["metadata"].get("annotations") or {}
        token = rotations.progress_of(annotations, step.servers)
        if token is None:
            return rotations.progress_text(step.servers, "")
        namespace = step.rotation.secret.namespace
        after = await self._in_tenant(namespace, here, lambda client: rewrite(client, token))
        return rotations.progress_text(step.servers, after)

    async def _in_tenant(
        self, namespace: str, here: Ref, question: Callable[[GatedClient], Awaitable[Found]]
    ) -> Found:
        """What the tenant's API server answers, which has no longer for it than a step may take."""
        client = self._open_tenant(await self._access(Ref("Secret", namespace, names.OPERATOR_CLIENT)))
        try:
            async with asyncio.timeout(IN_TENANT_TIMEOUT_S):
                return await question(client)
        except TimeoutError:
            late = UnreachableError(f"no answer within {IN_TENANT_TIMEOUT_S:.0f} s", Cause.TIMEOUT)
            raise _tenant_failure(late, here) from None
        except (ApiError, UnreachableError) as error:
            raise _tenant_failure(error, here) from None
        except ValueError:
            unread = UnreachableError("its answer cannot be read", Cause.MALFORMED)
            raise _tenant_failure(unread, here) from None
        finally:
            await client.close()

    async def _settle_defaults(self, step: SettleDefaults) -> Object:
        """A pass in the tenant; what it came to is written whatever that is."""
        namespace = step.target.namespace
        copied = sorted({each.copied_from for each in step.desired.objects} - {""})
        found = {name: await self._super.get(Ref("Secret", namespace, name)) for name in copied}
        secrets = {name: each for name, each in found.items() if each is not None}
        # Of a control plane that others made it is their kubeconfig.
        is_imported = step.credential.name == names.SYNCER_CLIENT
        open_client = self._open_import if is_imported else self._open_tenant
        client = open_client(await self._access(step.credential))
        try:
            result = await apply_defaults(
                TenantApi(client), step.desired, step.inventory, secrets, step.virtual_cluster
            )
        finally:
            await client.close()
        digest = step.desired.digest
        is_done = result.inventory.digest == digest
        record = next_record(step.record, digest, self._wall(), result.problems, is_done=is_done)
        metadata = {"name": step.target.name, "namespace": namespace, "labels": step.labels}
        data = {INVENTORY_KEY: write_inventory(result.inventory), RECORD_KEY: write_record(record)}
        return await self._super.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    async def _copy_kubeconfig(self, step: CopyKubeconfig) -> Object:
        """The copy is of what was judged, or it is not made."""
        text = secret_value(await self._super.get(step.source) or {}, step.key)
        if digest_of(text) != step.digest:
            raise StepFailedError(
                "SourceChanged", f"{step.source} has changed meanwhile and is read again", "conflict"
            )
        return await self._super.apply(kubeconfig_copy(step.digest, step.target.namespace, step.labels, text))

    async def _add_encryption_keys(self, step: AddEncryptionKeys) -> Object | None:
        """A new configuration writes with a key of its own."""
        source = await self._super.get(step.source)
        target = await self._super.get(step.target)
        if step.namespace:
            await self._check_same_owner(step, source or {})
        try:
            other = _data(source or {})[CONFIG]
            if target is None:
                data, annotations = rotating.new_encryption_config()
            else:
                data, annotations = _data(target), target["metadata"].get("annotations") or {}
            data[CONFIG] = with_keys_of(data[CONFIG], other)
        except (KeyError, ValueError):
            raise StepFailedError(
                "EncryptionKeysUnusable", f"{step.source} or {step.target} has no usable {CONFIG}"
            ) from None
        annotations = annotations | {keys.RESTORE_TOKEN: step.mark}
        made = issuing.secret_of(step.target.namespace, step.target.name, data, step.labels, annotations)
        if target is None:
            return await self._super.create(made)
        made["metadata"]["resourceVersion"] = target["metadata"]["resourceVersion"]
        return await self._super.replace(made)

    async def _check_same_owner(self, step: AddEncryptionKeys, source: Object) -> None:
        """A namespace of the same name that was made anew has no right to what the former one has saved."""
        place = await self._super.get(Ref("Namespace", "", step.namespace)) or {}
        made_s, saved_s = (_created_s(each) for each in (place, source))
        if made_s is None or saved_s is None or made_s > saved_s:
            message = (
                f"Namespace {step.namespace} is newer than {step.source}, which is of a former one of its"
                " name: restore the backup of a VirtualCluster of this one"
            )
            raise StepFailedError("BackupOfAnotherNamespace", message)

    async def _copy_secret(self, step: CopySecret) -> Object | None:
        source = await self._super.get(step.source)
        if source is None and step.is_optional:
            return None
        if source is None:
            raise StepFailedError("SecretMissing", f"{step.source} does not exist")
        # By these the copy is known when it takes the source's place.
        notes = source["metadata"].get("annotations") or {}
        metadata = {
            "name": step.target.name,
            "namespace": step.target.namespace,
            "labels": step.labels,
            "annotations": {key: notes[key] for key in JUDGED_BY if key in notes},
        }
        return await self._super.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": source.get("data") or {}}
        )

    async def _change_database(self, step: MakeDatabase | DropDatabase) -> Object | None:
        try:
            if isinstance(step, MakeDatabase):
                return await make_database(self._super, step, self._run_statements)
            await drop_database(self._super, step, self._run_statements)
        except PostgresqlError as error:
            message = f"database and role {step.name} by {step.server}: {error}"
            raise StepFailedError("DatabaseUnavailable", message, "database") from None
        return None

    async def _access(self, credential: Ref) -> Access:
        try:
            key = names.SYNCER_CLIENT if credential.name == names.SYNCER_CLIENT else names.KUBECONFIG_KEY
            return tenant_client.access_of(await self._super.get(credential), key)
        except TenantClientError as error:
            raise StepFailedError("CredentialUnusable", f"{credential}: {error}") from None

    async def _authority(self, ref: Ref) -> IssuedPair:
        found = await self._super.get(ref)
        try:
            return issuing.signing_pair(_data(found or {}))
        except (KeyError, ValueError):
            raise StepFailedError(
                "AuthorityMissing", f"{ref} has no usable tls.crt and tls.key; restore it from a backup"
            ) from None


def _data(secret: Object) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def _created_s(value: Object) -> float | None:
    return time_of((value.get("metadata") or {}).get("creationTimestamp", ""))


def _generated(step: GenerateKeys) -> Object:
    """The first key of service accounts, or of encryption at rest."""
    _, namespace, name = step.secret
    is_of_tokens = name == names.SERVICE_ACCOUNT_KEYS
    data, annotations = (
        rotating.new_service_account_keys() if is_of_tokens else rotating.new_encryption_config()
    )
    return issuing.secret_of(namespace, name, data, step.labels, annotations | step.annotations)


def _ref_of(step: OperatorStep, here: Ref) -> Ref:
    match step:
        case Apply(manifest) | ClaimNamespace(manifest):
            return ref_of(manifest)
        case Remove(ref):
            return ref
        case IssueAuthority(spec, namespace):
            return Ref("Secret", namespace, spec.secret)
        case IssueLeaf(spec):
            return spec.ref
        case GenerateKeys(secret):
            return secret
        case Rotate(rotation):
            return rotation.secret
        case SettleDefaults() | CopyKubeconfig() | CopySecret() | AddEncryptionKeys() | MakeDatabase():
            return step.target
        case EndPods(namespace):
            return Ref("Namespace", "", namespace)
        case DropDatabase():
            return step.credential
        case PatchCluster():
            return here


def _tenant_failure(error: ApiError | UnreachableError, cluster: Ref) -> StepFailedError:
    """What a tenant's own API server, or a webhook in it, answered: the super cluster has no part in it."""
    name = f"{cluster.name} -n {cluster.namespace}"
    if isinstance(error, UnreachableError):
        message = f"the tenant's API server does not answer; kubectl vc doctor {name}: {printable(error)}"
        return StepFailedError("TenantUnreachable", message, "tenant")
    webhook = blocking_webhook(error.status)
    if webhook is not None:
        return StepFailedError("WebhookInTheWay", webhook_problem(webhook, "", name), "tenant")
    message = f"the tenant's API server refuses it; kubectl vc doctor {name}: {printable(error)}"
    return StepFailedError("TenantRefuses", message, "tenant")


def _reason(error: StepFailedError | ApiError | UnreachableError) -> str:
    if isinstance(error, StepFailedError):
        return error.reason
    if isinstance(error, UnreachableError):
        return "SuperClusterUnreachable"
    return error.status.reason or "Refused"


def _cause(error: StepFailedError | ApiError | UnreachableError) -> str:
    if isinstance(error, StepFailedError):
        return error.cause
    if isinstance(error, UnreachableError):
        return "unreachable"
    named = {401: "unauthorized", 403: "forbidden", 404: "notFound", 409: "conflict", 429: "throttled"}
    return named.get(error.status.code, "server" if error.status.code >= 500 else "refused")
