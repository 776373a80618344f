# SPDX-License-Identifier: Apache-2.0
"""What vc-operator needs: `python -m tests.bench.operator`."""
