# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc`: tenants' control planes, from the super cluster's side.

Released, it is one file of Python: all that it imports is of the standard library, or
is ours and imports that alone. A test runs the file without any other package.
"""
