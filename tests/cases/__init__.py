# SPDX-License-Identifier: Apache-2.0
"""Runs files of request cases against a real vn-agent process and a scripted kubelet."""
