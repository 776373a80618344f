# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes for tests: two tenant apiservers, a super cluster and one node."""
