# SPDX-License-Identifier: Apache-2.0
"""The cost of the start gate for a pod's start, on real containerd, kubelet and apiserver."""
