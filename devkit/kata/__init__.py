# SPDX-License-Identifier: Apache-2.0
"""Fakes of the parts of Kata that need a virtual machine: agent, shim, VMM.

They ship beside the channels that they judge. What runs in the guest is real where it can be: real
iptables in a network namespace.
"""
