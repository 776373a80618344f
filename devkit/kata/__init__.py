# SPDX-License-Identifier: Apache-2.0
"""Fakes of the parts of Kata that need a virtual machine: agent, shim, VMM; of the runtime; and of a channel.

What runs in the guest is real where it can be: iptables in a network namespace.
"""
