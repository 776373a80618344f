# SPDX-License-Identifier: Apache-2.0
"""Ways to a control plane: made of pods in the super cluster, or adopted from others."""
