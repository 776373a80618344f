# SPDX-License-Identifier: Apache-2.0
"""Pure: from Kubernetes objects to the rules of each guest."""
