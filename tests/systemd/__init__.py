# SPDX-License-Identifier: Apache-2.0
"""The README's install section, run as it stands: an empty Debian beside a real Kubernetes."""
