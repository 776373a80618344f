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
    """So many `attempts` did not end since a pass did, the last one at `at_s` (since 1970), of the list of
    this digest."""

    digest: str = ""
    at_s: float = 0.0
    attempts: int = 0
    problems: tuple[str, ...] = ()


def next_record(
    before: PassRecord, digest: str, at_s: float, problems: tuple[str, ...], *, is_done: bool
) -> PassRecord:
    """The record after a pass. Another list is no fresh start: an owner could change it after each pass."""
    problems = tuple(one_line(each, _MAX_PROBLEM) for each in problems[:_MAX_PROBLEMS])
    if is_done:
        return PassRecord(digest, at_s, 0, problems)
    return PassRecord(digest, at_s, before.attempts + 1, problems)


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
