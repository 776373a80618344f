# SPDX-License-Identifier: Apache-2.0
"""A control plane that others made, adopted by its kubeconfig (docs/spec/imported-control-planes.md)."""
