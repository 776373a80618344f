# SPDX-License-Identifier: Apache-2.0
"""A stand-in kata-bridge for resolv.confs: guests that are values, pods that are known by their UID.

It keeps to bridge.proto where a client can tell: a text stays until another comes, a reason holds
until a request comes without one, neither withdraws both, what is for other networks than a sandbox's
changes nothing there. With `serve` it does so over gRPC on a unix socket.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bridge_api import rpc
from bridge_api.messages import (
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ResultCode,
    SetResolvConfRequest,
)
from devkit.bridge.fake_guests import FakeGuests


class FakeBridge(FakeGuests):
    """The guests and pods of a node. Pods are known by UID, also where a request named a guest."""

    def __init__(self) -> None:
        super().__init__()
        self.guests: dict[str, Guest] = {}
        self.received: list[SetResolvConfRequest] = []
        self.texts: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        # Answered instead, one each, to the next requests.
        self.refusals: list[tuple[ResultCode, str]] = []
        self.delay_s = 0.0

    # ---- guests

    def add(self, name: str, tenant: str, pod: str, /, **fields: Any) -> Guest:
        """A guest appears: the sandbox `name` of the pod `NAMESPACE/NAME` in the super cluster."""
        namespace, _, pod_name = pod.partition("/")
        guest = replace(Guest(name, namespace, pod_name, tenant=tenant), **fields)
        self.guests[name] = guest
        self._tell(GuestEvent(GuestEventKind.PRESENT, guest))
        return guest

    def remove(self, name: str) -> None:
        del self.guests[name]
        self._tell(GuestEvent(GuestEventKind.GONE, Guest(id=name)))

    def synced(self) -> None:
        """It has told of all its guests, where it had not."""
        self.is_synced = True
        self._tell(GuestEvent(GuestEventKind.SYNCED))

    def forget_everything(self) -> None:
        """As a restart of the bridge does."""
        self.texts.clear()
        self.waits.clear()
        self._break_watches()

    def _present(self) -> Iterable[Guest]:
        return self.guests.values()

    # ---- a connection, as `bridge_api.client.BridgeClient` is one

    async def set_resolv_conf(
        self, guest: str, text: str, *, waits: str = "", pod_uid: str = "", networks: Sequence[str] = ()
    ) -> GuestResult:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.received.append(SetResolvConfRequest(guest, text, waits, pod_uid, tuple(networks)))
        if self.refusals:
            return GuestResult(guest, *self.refusals.pop(0))
        if guest and guest not in self.guests:
            return GuestResult(guest, ResultCode.GONE, "no such sandbox")
        pod = pod_uid or self.guests[guest].uid or guest
        if networks and not self._is_for(pod, networks):
            return GuestResult(guest, ResultCode.APPLIED)
        before = (self.texts.get(pod, ""), self.waits.get(pod, ""))
        if text or not waits:
            self.texts[pod] = text
        self.waits[pod] = waits
        is_same = before == (self.texts.get(pod, ""), waits)
        return GuestResult(guest, ResultCode.UNCHANGED if is_same else ResultCode.APPLIED)

    def _is_for(self, pod: str, networks: Sequence[str]) -> bool:
        """Whether no sandbox of the pod is attached to others, as far as a test says to which."""
        its = [each.networks for each in self.guests.values() if pod in (each.uid, each.id) and each.networks]
        return all(set(each) == set(networks) for each in its)

    async def close(self) -> None:
        """Nothing to close."""

    # ---- over gRPC

    def _methods(self) -> Sequence[rpc.Bound]:
        async def set_resolv_conf(request: SetResolvConfRequest, _: Any) -> GuestResult:
            return await self.set_resolv_conf(
                request.guest,
                request.text,
                waits=request.waits,
                pod_uid=request.pod_uid,
                networks=request.networks,
            )

        return (rpc.SET_RESOLV_CONF.bind(set_resolv_conf),)
