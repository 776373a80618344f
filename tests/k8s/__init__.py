# SPDX-License-Identifier: Apache-2.0
"""The ring that runs on a real Kubernetes."""
