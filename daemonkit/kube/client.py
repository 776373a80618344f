# SPDX-License-Identifier: Apache-2.0
"""Requests to an API server, on aiohttp.

Everything that aiohttp raises is translated here: above this module there are `ApiError` (the
server answered, and refused) and `UnreachableError` (it did not answer, or not in time).
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import aiohttp
import msgspec

from daemonkit.kube.credentials import Credentials, Current
from daemonkit.kube.kubeconfig import load
from daemonkit.kube.resources import Status

CONNECT_TIMEOUT_S = 10.0
# The API server ends ordinary requests after 60 s itself (--request-timeout).
REQUEST_TIMEOUT_S = 65.0
# A page of 500 objects of the size that the server accepts at most would be more; real pages are
# below 10 MB, and what is larger must not take the node's memory.
MAX_RESPONSE_BYTES = 128 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024


class ApiError(Exception):
    """The server answered with an error. `status.code` is the HTTP status code."""

    def __init__(self, status: Status, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status.code} {status.reason}: {status.message}"[:500])
        self.status = status
        self.retry_after_s = retry_after_s


class UnreachableError(Exception):
    """The server did not answer: connection, TLS, or a deadline."""


class DeadlineError(UnreachableError):
    """Nothing came in time."""


class Client:
    """A client of one API server with one set of credentials. Use it as a context manager.

    Each request takes the credentials as they are then; connections are kept per TLS context, so
    that a new certificate is used from the next request on.
    """

    def __init__(self, credentials: Credentials, *, user_agent: str = "vcnode") -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path, *, user_agent: str = "vcnode") -> "Client":
        """A client by a kubeconfig, which is read again when it or a file in it changes.

        Raises CredentialsError if it cannot be used now.
        """
        return cls(Credentials(lambda: load(path), watched=(path,)), user_agent=user_agent)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def server(self) -> str:
        return self._credentials.current().access.server

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer.

        Raises ApiError and UnreachableError.
        """
        limits = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        async with self._response(method, path, params or {}, body, limits) as response:
            content = await _read(response, MAX_RESPONSE_BYTES)
            if len(content) > MAX_RESPONSE_BYTES:
                raise UnreachableError(f"an answer of more than {MAX_RESPONSE_BYTES} bytes")
            return content

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream (a watch) and give an iterator of its chunks, of any division.

        The iterator ends when the server ends the stream. DeadlineError is raised when no byte
        comes for `idle_timeout_s` or the whole lasts longer than `timeout_s`, ApiError when the
        server refuses, UnreachableError when the connection breaks.
        """
        limits = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s
        )
        async with self._response("GET", path, params, None, limits) as response:
            yield response.content.iter_any()

    @contextlib.asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = self._opened()
        now = self._credentials.current()
        with _translated():
            async with session.request(
                method,
                now.access.server + path,
                params=params,
                data=body,
                headers=_headers(now, body),
                ssl=now.tls if now.tls is not None else True,
                server_hostname=now.access.server_name,
                timeout=limits,
                allow_redirects=False,
            ) as response:
                if response.status == 401:
                    # The files may have changed without a trace in their metadata.
                    self._credentials.reload()
                if not 200 <= response.status < 300:
                    raise await _error(response)
                yield response

    def _opened(self) -> aiohttp.ClientSession:
        # Made at the first use, as a session belongs to the running loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._user_agent},
                trust_env=False,
            )
        return self._session


def _headers(now: Current, body: bytes | None) -> dict[str, str]:
    # No compression: it saves bytes on the wire for CPU on both ends, and watches have none.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if now.token is not None:
        headers["Authorization"] = f"Bearer {now.token}"
    return headers


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The body, or a little more than the limit of it."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > limit_bytes:
            break
    return b"".join(parts)


async def _error(response: aiohttp.ClientResponse) -> ApiError:
    body = await _read(response, _MAX_ERROR_BYTES)
    try:
        found = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A proxy on the way answers in HTML.
        found = Status(message="an answer that is no Status")
    status = msgspec.structs.replace(found, code=response.status)
    asked = found.details.retry_after_seconds if found.details is not None else 0
    return ApiError(status, max(float(asked), _retry_after_s(response.headers.get("Retry-After"))))


def _retry_after_s(header: str | None) -> float:
    """The seconds of a Retry-After; API servers never send its date form (RFC 9110, 10.2.3)."""
    is_number = header is not None and header.isascii() and header.isdigit() and len(header) < 9
    return float(header) if header is not None and is_number else 0.0


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ServerTimeoutError, TimeoutError):
        raise DeadlineError("nothing came in time") from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise UnreachableError(f"certificate: {_verification(error.certificate_error)}") from None
    except aiohttp.ClientConnectorError as error:
        raise UnreachableError(f"connect: {error.os_error}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}"[:500]) from None


def _verification(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(error)
