# SPDX-License-Identifier: Apache-2.0
"""Fakes of kata-bridge, as kubeproxy-ext and dnsconfig see it through `bridge_api`."""
