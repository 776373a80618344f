# SPDX-License-Identifier: Apache-2.0
"""The real kube-proxy beside our rules: random namespaces, the same packets to both, their differences."""
