# SPDX-License-Identifier: Apache-2.0
"""What a neighbour notices while somebody attacks vn-agent."""
