// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools keeps the main packages that build.py builds among this module's requirements.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
