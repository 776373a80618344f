# SPDX-License-Identifier: Apache-2.0
"""A tenant's latency beside another that uses its limits in full."""
