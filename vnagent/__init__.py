# SPDX-License-Identifier: Apache-2.0
"""vn-agent (README.md beside this file)."""

import sys

if "msgspec" not in sys.modules and "typing_extensions" not in sys.modules:
    # msgspec takes from typing_extensions what Python's own typing has too, and does without where it
    # cannot be imported: 0.3 MB of a small process (docs/decisions/0002). A later import succeeds.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # "cannot be imported" (reference, 5.3.1)
    import msgspec as msgspec

    del sys.modules["typing_extensions"]
