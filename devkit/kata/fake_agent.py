# SPDX-License-Identifier: Apache-2.0
"""A fake of stock Kata's agent: ttrpc on a unix socket in front of a guest's iptables.

It has kata-agent's order of checks, choice of binaries, arguments and error texts. `AgentQuirks` are the ways
in which real agents differ or fail.

No ring runs kata-agent, as that needs /dev/kvm: it follows docs/spec/kata.md#agent. Its iptables pass
`tests/iptables_contract.py`, its ttrpc `tests/k8s/test_ttrpc_interop.py`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Self

from daemonkit.protobuf import decode, encode
from devkit.kata.agent_policy import AgentPolicy, PolicyVerdict, parse
from devkit.kata.guest_tables import IptablesTools, ToolResult
from devkit.kata.ttrpc_server import TtrpcServer
from kata_bridge.channels.stock import kata_messages as m
from kata_bridge.ttrpc.status import Code, TtrpcError

ToolPaths = Mapping[str, tuple[str, ...]]
"""Where an agent looks for each of its four tools: it runs the first path that exists."""

# Agents of 2.5.
EARLY: ToolPaths = {
    "iptables-save": ("/sbin/iptables-save",),
    "iptables-restore": ("/sbin/iptables-restore",),
    "ip6tables-save": ("/sbin/ip6tables-save",),
    "ip6tables-restore": ("/sbin/ip6tables-restore",),
}
# Since pull request 13789.
REPAIRED: ToolPaths = {tool: (f"/usr/sbin/{tool}", f"/sbin/{tool}") for tool in EARLY}
# Between the two: IPv4 falls to the second place, IPv6 runs the save tool.
MISSPELT: ToolPaths = {
    **REPAIRED,
    "iptables-restore": ("/usr/sbin/iptables-store", "/sbin/iptables-restore"),
    "ip6tables-restore": ("/usr/sbin/ip6tables-save", "/sbin/ip6tables-restore"),
}

# The directory that a guest shares with its node.
SHARED = "/run/kata-containers/shared/containers"

# An image with a merged /usr and iptables in it.
IMAGE = frozenset(path for paths in REPAIRED.values() for path in paths)


@dataclass(slots=True)
class AgentQuirks:
    """How this agent and its guest differ from the newest working ones. May change while it runs."""

    version: str = "3.32.0"
    paths: ToolPaths = field(default_factory=lambda: REPAIRED)
    files: frozenset[str] = IMAGE
    policy: AgentPolicy | None = None  # None: built without one
    allowed_endpoints: frozenset[str] | None = None  # None: no such list in its configuration
    has_iptables_calls: bool = True
    has_nf_tables: bool = True
    is_share_readonly: bool = False  # the directory that it shares with the node
    is_save_failing: bool = False
    is_mute: bool = False  # accepts calls without a reply
    is_stdin_stuck: bool = False  # the restore leaves its stdin unread
    delay_s: float = 0.0  # before each iptables process
    restore_delay_s: float = 0.0  # before those that restore
    is_restore_lost: bool = False  # replies OK without a change
    hostile_error: str = ""  # the error of every iptables call
    hostile_save: bytes = b""  # the reported output of iptables-save


@dataclass(slots=True)
class Pushed:
    """The content of one SetIPTables call, and the number of concurrent calls."""

    is_ipv6: bool
    data: bytes
    at_once: int = 1


_NO_NF_TABLES = "Could not fetch rule set generation id: Invalid argument"
_LONGEST_S = 3600.0


@dataclass(slots=True)
class FakeAgent:
    """An agent on the unix socket `path`; `async with` serves it.

    `pushes` and `calls` are what it received, in order.
    """

    path: Path
    tables: IptablesTools
    quirks: AgentQuirks = field(default_factory=AgentQuirks)
    pushes: list[Pushed] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    copied: dict[str, bytes] = field(default_factory=dict)  # files by path, in the order they came
    _server: TtrpcServer | None = None
    _running: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    async def until_idle(self) -> None:
        """Wait until no push runs, abandoned ones included."""
        await self._idle.wait()

    async def __aenter__(self) -> Self:
        self._idle.set()
        self._server = TtrpcServer(self._answer)
        await self._server.start_unix(self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop()
        self.path.unlink(missing_ok=True)

    async def _answer(self, service: str, method: str, payload: bytes) -> bytes:
        self.calls.append(method)
        if self.quirks.is_mute:
            await asyncio.sleep(_LONGEST_S)
        match service, method:
            case m.HEALTH, "Version":
                return encode(m.VersionCheckResponse("0.0.1", self.quirks.version))
            case m.AGENT, "GetIPTables" if self.quirks.has_iptables_calls:
                self._admit("GetIPTablesRequest", method)
                return await self._get(decode(m.GetIPTablesRequest, payload))
            case m.AGENT, "SetIPTables" if self.quirks.has_iptables_calls:
                self._admit("SetIPTablesRequest", method)
                return await self._set(decode(m.SetIPTablesRequest, payload))
            case m.AGENT, "CopyFile":
                self._admit("CopyFileRequest", method)
                return self._copy(decode(m.CopyFileRequest, payload))
            case m.AGENT, "SetPolicy" if self.quirks.policy is not None:
                self._admit("SetPolicyRequest", method)
                return self._set_policy(self.quirks.policy, decode(m.SetPolicyRequest, payload))
        raise TtrpcError(Code.UNIMPLEMENTED, f"{method} method")

    def _admit(self, request: str, method: str) -> None:
        """Raise the agent's error for a request that its configuration or policy stops."""
        allowed = self.quirks.allowed_endpoints
        if allowed is not None and request not in allowed:
            raise TtrpcError(Code.UNIMPLEMENTED, f"{request} is blocked")
        policy = self.quirks.policy
        if policy is None:
            return
        match policy.verdict(request):
            case PolicyVerdict.DENIED:
                raise TtrpcError(Code.PERMISSION_DENIED, f"{request} is blocked by policy: ")
            case PolicyVerdict.UNDEFINED:
                text = f"{request}: internal error policy check: unexpected eval_query result len 0"
                raise TtrpcError(Code.INTERNAL, text)

    async def _get(self, request: m.GetIPTablesRequest) -> bytes:
        if self.quirks.hostile_error:
            raise TtrpcError(Code.INTERNAL, self.quirks.hostile_error)
        if self.quirks.hostile_save:
            return encode(m.GetIPTablesResponse(self.quirks.hostile_save))
        tool = "ip6tables-save" if request.is_ipv6 else "iptables-save"
        binary = self._binary(tool)
        ended = await self._run(binary, (), b"")
        # The real agent also answers a failed save with empty data.
        return encode(m.GetIPTablesResponse(b"" if self.quirks.is_save_failing else ended.stdout))

    async def _set(self, request: m.SetIPTablesRequest) -> bytes:
        tool = "ip6tables-restore" if request.is_ipv6 else "iptables-restore"
        binary = self._binary(tool)
        if self.quirks.is_stdin_stuck:
            raise TtrpcError(Code.INTERNAL, "timeout waiting for stdin writer to complete")
        self._running += 1
        self._idle.clear()
        self.pushes.append(Pushed(request.is_ipv6, request.data, self._running))
        try:
            ended = await self._run(binary, ("--wait", "5"), request.data)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
        if ended.code != 0:
            raise TtrpcError(Code.INTERNAL, f"{binary} failed: {ended.stderr}")
        return encode(m.SetIPTablesResponse(ended.stdout))

    def _binary(self, tool: str) -> str:
        """Choose by existence; the last path is run also where it is missing."""
        paths = self.quirks.paths[tool]
        return next((path for path in paths if path in self.quirks.files), paths[-1])

    async def _run(self, binary: str, arguments: tuple[str, ...], stdin: bytes) -> ToolResult:
        if binary not in self.quirks.files:
            raise TtrpcError(Code.INTERNAL, "No such file or directory (os error 2)")
        tool = binary.rpartition("/")[2]
        is_restore = tool.endswith("-restore")
        await asyncio.sleep(self.quirks.delay_s + self.quirks.restore_delay_s * is_restore)
        if not self.quirks.has_nf_tables:
            return ToolResult(1, stderr=f"{tool} v1.8.7 (nf_tables): {_NO_NF_TABLES}\n")
        if self.quirks.is_restore_lost and is_restore:
            return ToolResult(0)
        return await self.tables.run(tool, arguments, stdin)

    def _copy(self, request: m.CopyFileRequest) -> bytes:
        """As the newest agents do, but for files in parts."""
        path = PurePosixPath(request.path)
        if not path.is_relative_to(SHARED) or ".." in path.parts:
            raise TtrpcError(Code.INTERNAL, f"Path {path} is not below {SHARED}")
        if self.quirks.is_share_readonly:
            raise TtrpcError(Code.INTERNAL, "Read-only file system (os error 30)")
        if request.offset or len(request.data) != request.file_size or request.file_mode != 0o100600:
            raise TtrpcError(Code.INTERNAL, "the fake takes private files in one part")
        self.copied[request.path] = request.data
        return encode(m.Empty())

    def _set_policy(self, current: AgentPolicy, request: m.SetPolicyRequest) -> bytes:
        try:
            self.quirks.policy = parse(request.policy, current.engine)
        except ValueError as error:
            raise TtrpcError(Code.INTERNAL, str(error)) from None
        return encode(m.Empty())
