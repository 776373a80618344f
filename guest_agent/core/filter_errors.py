# SPDX-License-Identifier: Apache-2.0
"""What iptables-restore and nft mean when they fail: which line, or what is missing. Pure."""

import re

from guest_agent.core.packet_filter import Broken, Refused

# "line 7 failed", "line 7: RULE_APPEND failed (...)", "Error occurred at line: 7" of all versions
# of iptables-restore; "/dev/stdin:12:5-10: Error: ..." of nft, whatever the file is.
_IPTABLES = re.compile(r"\bline:? ([0-9]{1,7})")
_NFT = re.compile(r"^[^\s:]{1,255}:([0-9]{1,7}):[0-9]{1,7}-[0-9]{1,7}: ", re.MULTILINE)

# Where nft found it: a name that says nothing outside the agent.
_FILE = re.compile(r"^[^\s:]{1,255}:(?=[0-9]{1,7}:[0-9]{1,7}-[0-9]{1,7}: )", re.MULTILINE)

# What iptables says where another one has its lock; also what we say for it.
LOCKED = "Another app is currently holding the xtables lock"

# No line is to blame for these, even where one is named: the kernel or the system lacks something.
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


def renumbered(errors: str, before: int) -> str:
    """What iptables-restore says of a text for which it had read so many lines before."""
    return _IPTABLES.sub(lambda found: found[0][: -len(found[1])] + str(int(found[1]) - before), errors)


def failure(program: str, text: str, errors: str, status: int) -> Refused | Broken:
    """Make the exception of a program that ended with `status` after it was given `text`."""
    words = (
        " ".join(_FILE.sub("", errors).replace("^", "").split())
        or f"ended with status {status} without a word"
    )
    for sign in _MISSING:
        if sign in words:
            hint = _HINTS.get(sign)
            return Broken(f"{program}: {words}" + (f"; {hint}" if hint else ""))
    found = _NFT.search(errors) or _IPTABLES.search(errors)
    if found is None:
        return Broken(f"{program}: {words}")
    lines = text.split("\n")
    number = int(found[1])
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    if line == "COMMIT":
        table = next((each for each in reversed(lines[:number]) if each.startswith("*")), "")
        return Refused(f"{program}: {words}; the kernel refused the changes of table {table[1:]}")
    return Refused(f"{program}: {words}; line {number} is {line[:500]!r}")
