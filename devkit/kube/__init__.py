# SPDX-License-Identifier: Apache-2.0
"""A fake kube-apiserver: its storage, its wire format, and a transport without sockets."""
