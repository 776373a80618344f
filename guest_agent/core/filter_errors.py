# SPDX-License-Identifier: Apache-2.0
"""Reads the errors of iptables-restore and nft: which line was refused, or what is missing."""

import re

from guest_agent.core.packet_filter import FilterUnavailableError, RulesRefusedError

# "line 7 failed", "line 7: RULE_APPEND failed (...)", "Error occurred at line: 7" of all versions
# of iptables-restore; "/dev/stdin:12:5-10: Error: ..." of nft, whatever the file is.
_IPTABLES = re.compile(r"\bline:? ([0-9]{1,7})")
_NFT = re.compile(r"^[^\s:]{1,255}:([0-9]{1,7}):[0-9]{1,7}-[0-9]{1,7}: ", re.MULTILINE)

# The file that nft read: a name without a meaning outside the agent.
_FILE = re.compile(r"^[^\s:]{1,255}:(?=[0-9]{1,7}:[0-9]{1,7}-[0-9]{1,7}: )", re.MULTILINE)

# The error of iptables while another one holds its lock. We report the same words.
LOCKED = "Another app is currently holding the xtables lock"

# These errors are not the line's fault, even if they name one: the kernel or the system lacks something.
_MISSING = (
    "Table does not exist",
    "can't initialize",
    "Could not fetch rule set generation id",
    "Permission denied",
    "Operation not permitted",
    "No space left on device",
    "Read-only file system",
    LOCKED,
    "Cannot allocate memory",
    "out of memory",
    "Too many open files",
    "unable to initialize netlink socket",
)
_HINTS = {
    "Table does not exist": "the guest's kernel or its modules lack it (CONFIG_IP_NF_NAT, IP6_NF_NAT)",
    "Could not fetch rule set generation id": "the guest's kernel lacks nf_tables, which its iptables needs",
    "Permission denied": "the agent needs CAP_NET_ADMIN, and iptables CAP_NET_RAW as well",
    "Operation not permitted": "the agent needs CAP_NET_ADMIN",
}


def renumber_lines(errors: str, before: int) -> str:
    """Errors of iptables-restore with line numbers of the last script, `before` lines after the first."""
    return _IPTABLES.sub(lambda found: found[0][: -len(found[1])] + str(int(found[1]) - before), errors)


def filter_error(
    program: str, script: str, errors: str, status: int
) -> RulesRefusedError | FilterUnavailableError:
    """The exception for a program that ended with `status` and `errors` on `script`."""
    text = (
        " ".join(_FILE.sub("", errors).replace("^", "").split())
        or f"ended with status {status} without an error message"
    )
    for sign in _MISSING:
        if sign in text:
            hint = _HINTS.get(sign)
            return FilterUnavailableError(f"{program}: {text}" + (f"; {hint}" if hint else ""))
    found = _NFT.search(errors) or _IPTABLES.search(errors)
    if found is None:
        return FilterUnavailableError(f"{program}: {text}")
    lines = script.split("\n")
    number = int(found[1])
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    if line == "COMMIT":
        table = next((each for each in reversed(lines[:number]) if each.startswith("*")), "")
        return RulesRefusedError(f"{program}: {text}; the kernel refused the changes of table {table[1:]}")
    return RulesRefusedError(f"{program}: {text}; line {number} is {line[:500]!r}")
