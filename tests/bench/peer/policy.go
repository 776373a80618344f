// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// table is what the peer knows: registered client keys and this node's pods. The bench writes it as
// one JSON file from the same fixture that vn-agent reads as tenant files and a PodList.
type table struct {
	clients map[string]client
	pods    map[podName]pod
}

type client struct {
	tenant    string
	authority []byte // DER of the one certificate that may have issued the leaf
}

type podName struct{ tenant, namespace, name string }

type pod struct {
	namespace, name string // in the super cluster
	containers      map[string]bool
}

func readTable(path string) (*table, error) {
	var file struct {
		Clients []struct{ Tenant, SPKISHA256, Authority string }
		Pods    []struct {
			Tenant, Namespace, Name, SuperNamespace, SuperName string
			Containers                                         []string
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := &table{clients: map[string]client{}, pods: map[podName]pod{}}
	for _, c := range file.Clients {
		block, _ := pem.Decode([]byte(c.Authority))
		if block == nil {
			return nil, fmt.Errorf("%s: client of %s: authority is not PEM", path, c.Tenant)
		}
		t.clients[c.SPKISHA256] = client{c.Tenant, block.Bytes}
	}
	for _, p := range file.Pods {
		names := map[string]bool{}
		for _, name := range p.Containers {
			names[name] = true
		}
		t.pods[podName{p.Tenant, p.Namespace, p.Name}] = pod{p.SuperNamespace, p.SuperName, names}
	}
	return t, nil
}

// decision is the outcome for one request, and all fields of its audit line.
type decision struct {
	tenant, identity                    string
	endpoint, namespace, pod, container string
	reason                              string // empty if allowed
	status                              int    // of a refusal
	path, query                         string // upstream, if allowed
}

var parameters = map[string]map[string]bool{
	"containerLogs": set("follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"),
	"exec":          set("command", "input", "output", "error", "tty"),
	"attach":        set("input", "output", "error", "tty"),
	"portForward":   set("port"),
}

func set(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// decide is the same chain of questions that vn-agent asks: who calls, what is meant, is it theirs.
func (t *table) decide(r *http.Request) *decision {
	d := &decision{}
	if !t.identify(r.TLS, d) {
		return d.deny("unregistered", http.StatusForbidden)
	}
	parts := strings.Split(r.URL.EscapedPath(), "/")
	if len(parts) < 4 || parts[0] != "" {
		return d.deny("endpoint", http.StatusForbidden)
	}
	d.endpoint, d.namespace, d.pod = parts[1], parts[2], parts[3]
	allowed, known := parameters[d.endpoint]
	if !known {
		return d.deny("endpoint", http.StatusForbidden)
	}
	hasContainer := d.endpoint != "portForward"
	if (hasContainer && len(parts) != 5) || (!hasContainer && len(parts) != 4) {
		return d.deny("path", http.StatusNotFound)
	}
	if d.endpoint == "containerLogs" && r.Method != http.MethodGet {
		return d.deny("method", http.StatusMethodNotAllowed)
	}
	if d.endpoint != "containerLogs" && !isUpgrade(r) {
		return d.deny("no upgrade", http.StatusBadRequest)
	}
	target, owned := t.pods[podName{d.tenant, d.namespace, d.pod}]
	if !owned {
		return d.deny("foreign", http.StatusNotFound)
	}
	d.path = "/" + d.endpoint + "/" + target.namespace + "/" + target.name
	if hasContainer {
		d.container = parts[4]
		if !target.containers[d.container] {
			return d.deny("container", http.StatusNotFound)
		}
		d.path += "/" + d.container
	}
	query, ok := rebuild(r.URL.RawQuery, allowed)
	if !ok {
		return d.deny("parameters", http.StatusBadRequest)
	}
	d.query = query
	return d
}

func (d *decision) deny(reason string, status int) *decision {
	d.reason, d.status = reason, status
	return d
}

// identify names the tenant: the leaf's key is registered, and that tenant's authority issued it.
func (t *table) identify(state *tls.ConnectionState, d *decision) bool {
	sum := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
	d.identity = hex.EncodeToString(sum[:])
	who, registered := t.clients[d.identity]
	if !registered {
		return false
	}
	for _, chain := range state.VerifiedChains {
		if bytes.Equal(chain[len(chain)-1].Raw, who.authority) {
			d.tenant = who.tenant
			return true
		}
	}
	return false
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Connection"), "upgrade") && r.Header.Get("Upgrade") != ""
}

func rebuild(raw string, allowed map[string]bool) (string, bool) {
	if raw == "" {
		return "", true
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", false
	}
	for name, list := range values {
		if !allowed[name] || (len(list) > 1 && name != "command") {
			return "", false
		}
	}
	return values.Encode(), true
}
