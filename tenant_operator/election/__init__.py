# SPDX-License-Identifier: Apache-2.0
"""Which of several operators writes: the one that holds a Lease."""
