# SPDX-License-Identifier: Apache-2.0
"""Fakes of the daemons' peers, for tests, the demo and labs."""
