# SPDX-License-Identifier: Apache-2.0
"""The operator's policy for stock agents that refuse iptables calls."""

from pathlib import Path


def read_policy(path: Path | None) -> tuple[str | None, str]:
    """The policy's text, or None; and why it cannot be read, or empty."""
    if path is None:
        return None, ""
    try:
        return path.read_text(), ""
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path}: {getattr(error, 'strerror', None) or error}"
