# SPDX-License-Identifier: Apache-2.0
"""What the last pass over the defaults came to: key `record` of the ConfigMap with the inventory."""

import msgspec

from tenant_operator.model.foreign_text import one_line

RECORD_KEY = "record"

_MAX_BYTES = 64 << 10
_MAX_PROBLEMS = 20
# With the others they are less than what is read.
_MAX_PROBLEM = 1000


class PassRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of the list of this digest `attempts` passes did not end, the last one at `at_s` (since 1970)."""

    digest: str = ""
    at_s: float = 0.0
    attempts: int = 0
    problems: tuple[str, ...] = ()


def next_record(
    before: PassRecord, digest: str, at_s: float, problems: tuple[str, ...], *, is_done: bool
) -> PassRecord:
    """The record after a pass."""
    problems = tuple(one_line(each, _MAX_PROBLEM) for each in problems[:_MAX_PROBLEMS])
    if is_done:
        return PassRecord(digest, at_s, 0, problems)
    attempts = before.attempts + 1 if before.digest == digest else 1
    return PassRecord(digest, at_s, attempts, problems)


def write_record(record: PassRecord) -> str:
    """The text that `read_record` reads."""
    return msgspec.json.encode(record).decode()


def read_record(text: str | None) -> PassRecord:
    """What a ConfigMap has; an empty one for a text that is no record."""
    if not text or len(text) > _MAX_BYTES:
        return PassRecord()
    try:
        return msgspec.json.decode(text, type=PassRecord)
    except (msgspec.DecodeError, RecursionError):
        return PassRecord()
