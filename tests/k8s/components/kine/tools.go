// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools keeps the main packages that build.py builds among this module's requirements.
package tools

import (
	_ "github.com/k3s-io/kine"
)
