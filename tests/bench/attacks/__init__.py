# SPDX-License-Identifier: Apache-2.0
"""A neighbour's latency while another tenant attacks vn-agent."""
