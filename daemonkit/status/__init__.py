# SPDX-License-Identifier: Apache-2.0
"""The status endpoints: /healthz, /readyz, /metrics, /status."""
