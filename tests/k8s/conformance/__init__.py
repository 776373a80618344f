# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own conformance tests, through a tenant of vc-syncer and on the bare super cluster."""
