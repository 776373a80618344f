# SPDX-License-Identifier: Apache-2.0
"""Objects that each tenant gets in its own control plane: which, in which order, and whose they are later."""
