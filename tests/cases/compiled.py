# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases.compiled TREE [arguments of tests.cases]`: vn-agent as packages install it.

`packaging/tree.py` makes TREE. Its byte path must be compiled: otherwise the run would only repeat
`make cases`.
"""

import subprocess
import sys
from pathlib import Path

from tests.cases.__main__ import main as run_cases
from tests.cases.daemon import VnAgentProcess

_LOCATE = (
    "import sys; sys.path.insert(0, sys.argv[1]); import vnagent.transport.poller as compiled;"
    " print(compiled.__file__)"
)


def main() -> int:
    tree = Path(sys.argv[1]).resolve()
    located = subprocess.run(
        [sys.executable, "-I", "-c", _LOCATE, str(tree)], capture_output=True, text=True, check=False
    )
    file = located.stdout.strip()
    if not (file.endswith(".so") and Path(file).is_relative_to(tree)):
        sys.stderr.write(f"{tree}: the byte path is not compiled: {file or located.stderr}\n")
        return 2
    VnAgentProcess.tree = tree
    return run_cases(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
