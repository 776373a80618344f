# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo`: the real daemons on one machine, with fakes around them."""
