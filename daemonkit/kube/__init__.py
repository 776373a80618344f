# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes client of the size we need: list, watch, and a store that follows.

Pure: `resources`, `kubeconfig` (but for reading the file), `watch`, `store`, `progress`.
Acting: `credentials`, `connection`, `client`, `reflector`.
"""
