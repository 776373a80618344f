# SPDX-License-Identifier: Apache-2.0
"""What the gate costs a pod's start, on real containerd, kubelet and apiserver."""
