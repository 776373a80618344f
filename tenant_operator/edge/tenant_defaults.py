# SPDX-License-Identifier: Apache-2.0
"""Carries out the plan for the defaults of one tenant: reads, applies and deletes in its API server."""

import asyncio
from collections.abc import Mapping

import msgspec

from daemonkit.kube.client import ApiError, UnreachableError
from tenant_operator.defaults.desired import DesiredList, is_definition
from tenant_operator.defaults.inventory import Inventory
from tenant_operator.defaults.kept import kept
from tenant_operator.defaults.kinds import KINDS, TenantRef, kinds_of
from tenant_operator.defaults.plan import (
    ApplyDefault,
    DefaultsStep,
    LiveObjectState,
    applied,
    needed,
    plan,
)
from tenant_operator.defaults.webhooks import blocking_webhook, webhook_problem
from tenant_operator.edge.tenant_api import TenantApi
from tenant_operator.model.foreign_text import one_line
from tenant_operator.model.objects import Object

# Of a pass. A tenant that is slower goes on in the next one, from where this one came.
PASS_TIMEOUT_S = 60.0
# What one round makes possible, the next one does: a definition, and the objects of it.
_MAX_ROUNDS = 4
_MAX_TEXT = 300
# Of a definition, so many are looked at for objects.
_MAX_VERSIONS = 20
# Of a pass: 500 objects of which most fields are the tenant's. A value of Python takes more than its text.
_MAX_KEPT_BYTES = 4 << 20
_VALUE_BYTES = 80
_BEFORE_VALUES = (b",", b"[", b"{")
_ENCODER = msgspec.json.Encoder()


class DefaultsResult(msgspec.Struct, frozen=True):
    """What a pass came to. `inventory` is to be kept in any case; its digest is set once all is done."""

    inventory: Inventory
    waits_for: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


async def apply_defaults(
    api: TenantApi,
    desired: DesiredList,
    inventory: Inventory,
    secrets: Mapping[str, Object],
    virtual_cluster: str,
) -> DefaultsResult:
    """One pass. `secrets` are those of the root namespace that objects are copied from, by name.

    What the tenant refuses is a problem, and the other objects go on. `virtual_cluster` is its name for
    remedies.
    """
    found = _Pass(api, desired, inventory, secrets, virtual_cluster)
    try:
        async with asyncio.timeout(PASS_TIMEOUT_S):
            await found.run()
    except TimeoutError:
        found.failures.append(
            f"the tenant's API server took more than {PASS_TIMEOUT_S:.0f} s for its defaults"
        )
    except (ApiError, UnreachableError) as error:
        found.failures.append(printable(error))
    return found.result


class _Pass:
    def __init__(
        self,
        api: TenantApi,
        desired: DesiredList,
        inventory: Inventory,
        secrets: Mapping[str, Object],
        virtual_cluster: str,
    ) -> None:
        self.failures: list[str] = []
        self._api = api
        self._desired = desired
        self._desired_now = {each.ref: each for each in desired.objects}
        self._kept_bytes = 0
        self._inventory = inventory
        self._secrets = secrets
        self._virtual_cluster = virtual_cluster
        self._waits_for: tuple[str, ...] = ()
        self._problems: dict[str, None] = {}
        self._live: dict[TenantRef, LiveObjectState] = {}
        self._applied_now: set[TenantRef] = set()

    @property
    def result(self) -> DefaultsResult:
        """What it came to so far. An inventory with a digest says that all is done."""
        inventory = Inventory("", self._inventory.entries) if self.failures else self._inventory
        return DefaultsResult(
            inventory, self._waits_for, tuple(dict.fromkeys([*self.failures, *self._problems]))
        )

    async def run(self) -> None:
        """Read, plan and act, until nothing is left to do or something is refused."""
        for ref, path in needed(self._desired, self._inventory).items():
            await self._read(ref, path)
        for _ in range(_MAX_ROUNDS):
            found = plan(self._desired, self._inventory, self._live, self._applied_now)
            self._inventory, self._waits_for = found.inventory, found.waits_for
            self._problems.update(dict.fromkeys(found.problems))
            if self.failures or not found.steps:
                return
            for step in found.steps:
                await self._carry_out(step)

    async def _read(self, ref: TenantRef, path: str) -> None:
        value = await self._api.read(path)
        if value is None:
            self._live[ref] = LiveObjectState()
            return
        is_leaving = is_definition(ref) and ref not in self._desired_now
        collections = _collections(value) if is_leaving else []
        # While the next answers come, no whole one is held.
        value = self._keep(ref, value)
        has_objects = await self._api.has_objects(collections) if is_leaving else None
        self._live[ref] = LiveObjectState(value, has_objects)

    def _keep(self, ref: TenantRef, value: Object) -> Object:
        """What the plan needs of an answer. Raises UnreachableError for no object, and for too much of it."""
        found = kept(ref, value, self._desired_now.get(ref))
        if found is None:
            raise UnreachableError(f"the answer for {ref} is no object with a UID and a version")
        content = _ENCODER.encode(found["metadata"])
        self._kept_bytes += len(content) + _VALUE_BYTES * sum(map(content.count, _BEFORE_VALUES))
        if self._kept_bytes > _MAX_KEPT_BYTES:
            raise UnreachableError(f"the owners of the fields take more than {_MAX_KEPT_BYTES >> 20} MiB")
        return found

    async def _carry_out(self, step: DefaultsStep) -> None:
        """What the API server refuses is a failure of this object alone."""
        ref = step.desired.ref if isinstance(step, ApplyDefault) else step.ref
        try:
            if isinstance(step, ApplyDefault):
                await self._apply(step)
            else:
                await self._api.remove(step.path, step.uid, step.resource_version)
                await self._read(step.ref, step.path)
        except ApiError as error:
            self.failures.append(f"{ref}: {await self._refusal(error)}")

    async def _apply(self, step: ApplyDefault) -> None:
        desired = step.desired
        manifest = step.manifest
        if desired.copied_from:
            copied = _copied(self._secrets.get(desired.copied_from))
            if copied is None:
                self.failures.append(
                    f"{desired.ref} waits for Secret {desired.copied_from} of the root namespace"
                )
                return
            manifest = {**manifest, "data": copied}
        whole = await self._api.apply(desired.path, manifest, forces=step.forces)
        answer = self._keep(desired.ref, whole)
        self._applied_now.add(desired.ref)
        self._inventory = self._inventory.with_entry(applied(desired, answer))
        self._live[desired.ref] = LiveObjectState(answer)

    async def _refusal(self, error: ApiError) -> str:
        """Why, in a sentence; a webhook of the tenant is named by its configuration."""
        webhook = blocking_webhook(error.status)
        if webhook is None:
            return printable(error)
        try:
            configuration = await self._api.configuration_of(webhook)
        except (ApiError, UnreachableError):
            configuration = ""
        return webhook_problem(webhook, configuration, self._virtual_cluster)


def _collections(definition: Object) -> list[str]:
    """Where the objects of a definition are listed, in each of its versions."""
    own = {kind: resource for kind, resource in kinds_of([definition]).items() if kind not in KINDS}
    return [resource.path() for resource in own.values()][:_MAX_VERSIONS]


def _copied(secret: Object | None) -> Object | None:
    data = (secret or {}).get("data")
    if not isinstance(data, dict):
        return None
    found = {key: data.get(key) for key in ("tls.crt", "tls.key")}
    return found if all(isinstance(each, str) and each for each in found.values()) else None


def printable(error: ApiError | UnreachableError) -> str:
    """The tenant's API server wrote it."""
    return one_line(error, _MAX_TEXT)
