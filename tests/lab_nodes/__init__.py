# SPDX-License-Identifier: Apache-2.0
"""The lab of `lab/` without Vagrant: booted Debians on one machine. `__main__` is the command."""
