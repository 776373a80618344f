# SPDX-License-Identifier: Apache-2.0
"""One file a kind: how its objects go down, how their truth comes up. Pure."""
