# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote, such as a tenant's API server, as conditions, records and logs may have it."""

# As a name of Kubernetes may be long.
MAX_TEXT = 253
# No message shows more of it, and a text of a megabyte is not looked through.
_MAX_READ = 4096


def one_line(text: object, most: int = MAX_TEXT) -> str:
    """The text, or that of an error, in one line of printable characters."""
    line = " ".join(str(text)[:_MAX_READ].split())
    return "".join(each for each in line if each.isprintable())[:most]
