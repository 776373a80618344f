# SPDX-License-Identifier: Apache-2.0
"""The real vn-agent of the demo."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcnode.terminal import ToolError
from vcnode_demo.daemon import Daemon


class Agent(Daemon):
    """vn-agent, with its audit log, on a port that it chooses."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.audit_file = directory / "audit.jsonl"
        audited = {**config, "audit": {"file": str(self.audit_file)}}
        super().__init__("vn-agent", "vnagent", directory, "VnAgentConfiguration", audited)

    @property
    def port(self) -> int:
        """The port that it chose to listen on."""
        port = self.status()["listen"]["port"]
        if not isinstance(port, int):
            raise ToolError("vn-agent does not say where it listens")
        return port

    def audit(self) -> list[dict[str, Any]]:
        """The audit log so far."""
        return [json.loads(line) for line in self.audit_file.read_text("utf-8").splitlines()]
