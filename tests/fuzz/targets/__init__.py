# SPDX-License-Identifier: Apache-2.0
"""One module a target: its seeds, and the invariants that hold for each input."""
