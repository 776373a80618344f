// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools keeps the main packages that build.py builds among this module's requirements.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
