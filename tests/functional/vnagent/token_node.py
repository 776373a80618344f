# SPDX-License-Identifier: Apache-2.0
"""A node whose tenants have ports for bearer tokens."""

import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devkit.files import replace_file
from tests.cases.client import CaseClient
from tests.cases.replies import ReceivedReply
from tests.functional.scraped_node import free_ports
from tests.functional.vnagent.node import DEADLINE_S, NAME, AgentNode, head, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, SHOP
from tests.token_issuer import AUDIENCE, ISSUER, SUBJECT, TokenIssuer
from tests.waiting import wait_until

TENANTS = ("ten-a", "ten-b")


class TokenNode:
    """Two tenants with a pod, an issuer and a port each. Both issuers have one name."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        """`settings` are sections of the configuration."""
        self.issuers = {key: TokenIssuer() for key in TENANTS}
        self.ports = dict(zip(TENANTS, free_ports(len(TENANTS)), strict=True))
        self._directory = directory
        listeners = [self.listener(key) for key in TENANTS]
        self.node = AgentNode(
            directory / "n", TENANTS, [SHOP, BANK], {"tokenListeners": listeners, **settings}
        )

    def listener(self, key: str, **changes: Any) -> dict[str, Any]:
        """The entry of a tenant in the configuration."""
        return {
            "tenant": key,
            "port": self.ports[key],
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "jwksFile": str(self.jwks_file(key)),
            "subjects": [SUBJECT],
            **changes,
        }

    def jwks_file(self, key: str) -> Path:
        return self._directory / f"{key}.jwks"

    def write_jwks(self, key: str, data: bytes | None = None) -> None:
        """The issuer's keys, or `data`."""
        replace_file(self.jwks_file(key), (self.issuers[key].jwks() if data is None else data).decode())

    def __enter__(self) -> "TokenNode":
        for key in TENANTS:
            self.write_jwks(key)
        self.node.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.node.stop()

    def context(self) -> ssl.SSLContext:
        """TLS of a scraper without a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.node.serving.cert_pem.decode())
        return context

    @contextlib.contextmanager
    def client(self, key: str, source: str = "") -> Iterator[CaseClient]:
        """A connection to a tenant's port after its handshake, from the address `source` if it is given."""
        address = ("127.0.0.1", self.ports[key])
        with CaseClient(address, self.context(), sni=NAME, source=source) as client:
            client.handshake()
            yield client

    def ask(self, key: str, line: str, token: str | None, *headers: str) -> ReceivedReply | None:
        """One request with a token on a connection of its own."""
        with self.client(key) as client:
            return request(client, line, token, *headers)

    def audit_line(self, reply: ReceivedReply | None) -> dict[str, Any]:
        """The audit line of an answered request, once it is written."""
        assert reply is not None
        (request_id,) = reply.values("X-Request-Id")
        wait_until(lambda: request_id in self._audited(), within_s=DEADLINE_S)
        return self._audited()[request_id]

    def _audited(self) -> dict[str, dict[str, Any]]:
        text = (self.node.directory / "audit.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return {line["requestId"]: line for line in lines}


def request(client: CaseClient, line: str, token: str | None, *headers: str) -> ReceivedReply | None:
    """One request, and the reply to it alone."""
    client.received.clear()
    bearer = () if token is None else (f"Authorization: Bearer {token}",)
    client.send(head(line, *bearer, *headers))
    return reply_of(client, line.partition(" ")[0])
