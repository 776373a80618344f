# SPDX-License-Identifier: Apache-2.0
"""A stand-in kata-bridge for resolv.confs: guests that are values, pods that are known by their UID.

It keeps to bridge.proto where a client can tell: a text stays until another comes, a reason holds
until a request comes without one, neither withdraws both. With `serve` it does so over gRPC on a
unix socket.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kata_bridge.api import rpc
from kata_bridge.api.client import BridgeAway
from kata_bridge.api.messages import (
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ResultCode,
    SetResolvConfRequest,
    WatchGuestsRequest,
)


class FakeBridge:
    """The guests and pods of a node. Pods are known by UID, also where a request named a guest."""

    def __init__(self) -> None:
        self.guests: dict[str, Guest] = {}
        self.received: list[SetResolvConfRequest] = []
        self.texts: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        # Answered instead, one each, to the next requests.
        self.refusals: list[tuple[ResultCode, str]] = []
        self.is_synced = True
        self.delay_s = 0.0
        self._watchers: set[asyncio.Queue[GuestEvent | None]] = set()
        self._server: grpc.aio.Server | None = None

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

    def forget_everything(self) -> None:
        """As a restart of the bridge does."""
        self.texts.clear()
        self.waits.clear()
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def _tell(self, event: GuestEvent) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(event)

    # ---- a connection, as `kata_bridge.api.client.BridgeClient` is one

    async def watch_guests(self) -> AsyncIterator[GuestEvent]:
        watcher: asyncio.Queue[GuestEvent | None] = asyncio.Queue()
        for guest in self.guests.values():
            watcher.put_nowait(GuestEvent(GuestEventKind.PRESENT, guest))
        if self.is_synced:
            watcher.put_nowait(GuestEvent(GuestEventKind.SYNCED))
        self._watchers.add(watcher)
        try:
            while True:
                event = await watcher.get()
                if event is None:
                    raise BridgeAway("the bridge is restarted")
                yield event
        finally:
            self._watchers.discard(watcher)

    async def set_resolv_conf(
        self, guest: str, text: str, *, waits: str = "", pod_uid: str = ""
    ) -> GuestResult:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.received.append(SetResolvConfRequest(guest, text, waits, pod_uid))
        if self.refusals:
            return GuestResult(guest, *self.refusals.pop(0))
        if guest and guest not in self.guests:
            return GuestResult(guest, ResultCode.GONE, "no such sandbox")
        pod = pod_uid or self.guests[guest].uid or guest
        before = (self.texts.get(pod, ""), self.waits.get(pod, ""))
        if text or not waits:
            self.texts[pod] = text
        self.waits[pod] = waits
        is_same = before == (self.texts.get(pod, ""), waits)
        return GuestResult(guest, ResultCode.UNCHANGED if is_same else ResultCode.APPLIED)

    async def close(self) -> None:
        """Nothing to close."""

    # ---- over gRPC

    async def serve(self, path: Path) -> None:
        """Listen on the unix socket `path` until `stop`."""

        async def watch(_: WatchGuestsRequest, context: Any) -> AsyncIterator[GuestEvent]:
            try:
                async for event in self.watch_guests():
                    yield event
            except BridgeAway as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

        async def set_resolv_conf(request: SetResolvConfRequest, _: Any) -> GuestResult:
            return await self.set_resolv_conf(
                request.guest, request.text, waits=request.waits, pod_uid=request.pod_uid
            )

        path.unlink(missing_ok=True)  # noqa: ASYNC240 - once, before anything is served
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (rpc.service(rpc.WATCH_GUESTS.bind(watch), rpc.SET_RESOLV_CONF.bind(set_resolv_conf)),)
        )
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Go away; the guests stay."""
        self.forget_everything()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
