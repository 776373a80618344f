# SPDX-License-Identifier: Apache-2.0
"""Writes a tenant's Secrets again as they are, so that its store has them encrypted by the present key.

An empty patch changes nothing of a Secret. The API server reads it from the store all the same, and writes it
if a former key encrypted it (`GuaranteedUpdate`, k8s.io/apiserver pkg/storage/etcd3: stale data).

A webhook of the tenant may hold each write for half a minute. So a step has a time, and what was rewritten by
then is not rewritten by the next one.
"""

import asyncio

import msgspec

from daemonkit.kube.client import ApiError, DeadlineError
from daemonkit.kube.resources import SECRETS, ListMeta, Named, NameOnly
from daemonkit.remedies import Cause
from tenant_operator.edge.pages import PageReader
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import OPERATOR

# Some seconds of a step where nothing holds it: the next one goes on behind it.
MAX_SECRETS = 500
# Of a step, as of a pass of the defaults.
STEP_TIMEOUT_S = 60.0
# Small ones, and a few that have a mebibyte: only their names are kept of a page.
_PAGE = 20
_MAX_ANSWER_BYTES = 4 << 20
# Between a token, which is base64, and the name of a Secret.
_BEHIND = "|"
_MERGE_PATCH = "application/merge-patch+json"


class _StoredSecrets(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Named] = []


class _Progress:
    """How far Secrets are rewritten: to the begin of a page, and to this one of them.

    `text` has both. A list is in the order of `namespace/name`, and what was made since then is encrypted by
    the present key.
    """

    def __init__(self, text: str) -> None:
        self.token, _, self.last = text.partition(_BEHIND)

    @property
    def text(self) -> str:
        return f"{self.token}{_BEHIND}{self.last}" if self.last else self.token


async def rewrite(client: GatedClient, progress: str) -> str:
    """Rewrite those behind this progress; returns how far they are then, empty behind the last Secret.

    One that is gone, or was written meanwhile, needs nothing. Raises ApiError and UnreachableError for the
    first that the API server refuses, and DeadlineError if the time was not enough for one.
    """
    done = _Progress(progress)
    try:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            await _rewrite(client, done)
    except TimeoutError:
        if done.text == progress:
            text = f"no Secret could be written within {STEP_TIMEOUT_S:.0f} s"
            raise DeadlineError(text, Cause.TIMEOUT) from None
    return done.text


async def _rewrite(client: GatedClient, done: _Progress) -> None:
    reader = PageReader(client, SECRETS.path(None), {}, _PAGE)
    for _ in range(MAX_SECRETS // _PAGE):
        page = await _page(reader, done.token)
        for each in page.items:
            name = f"{each.metadata.namespace}/{each.metadata.name}"
            if name > done.last:
                await _write(client, each.metadata)
                done.last = name
        done.token, done.last = page.metadata.continue_, ""
        if not done.token:
            return


async def _page(reader: PageReader, token: str) -> _StoredSecrets:
    try:
        body = await reader.read(token)
    except ApiError as error:
        if error.status.code != 410 or not token:
            raise
        # The token has expired. From the beginning: what was rewritten costs a read.
        return await _page(reader, "")
    return msgspec.json.decode(body, type=_StoredSecrets)


async def _write(client: GatedClient, place: NameOnly) -> None:
    params = {"fieldManager": OPERATOR}
    path = SECRETS.path(place.namespace, place.name)
    try:
        await client.request(
            "PATCH", path, params, b"{}", content_type=_MERGE_PATCH, limit_bytes=_MAX_ANSWER_BYTES
        )
    except ApiError as error:
        if error.status.code not in (404, 409):
            raise
