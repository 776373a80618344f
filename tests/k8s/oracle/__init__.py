# SPDX-License-Identifier: Apache-2.0
"""The real kube-proxy beside our rules: random worlds, the same packets to both, one list of differences."""
