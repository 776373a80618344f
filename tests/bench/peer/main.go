// SPDX-License-Identifier: Apache-2.0

// Peer is what a good Go engineer would write in vn-agent's place in an afternoon: the standard
// library's reverse proxy with a tuned transport and the same policy. It is the yardstick of the
// bench, so whatever makes it faster and keeps it a reverse proxy belongs here.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vcnode.io/bench/tlsfiles"
)

type decisionKey struct{}

// buffers spares ReverseProxy a fresh 32 KB for every answer.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any {
		p := make([]byte, 32<<10)
		return &p
	}}}
}

type settings struct {
	upstream, serverName, auditFile, table string
	serving, kubelet                       tlsfiles.Files
}

func main() {
	log.SetFlags(0)
	var s settings
	flag.StringVar(&s.upstream, "upstream", "", "kubelet's host:port")
	flag.StringVar(&s.serverName, "upstream-name", "", "name in the kubelet's certificate")
	flag.StringVar(&s.table, "table", "", "JSON file of clients and pods")
	flag.StringVar(&s.auditFile, "audit", "", "audit file")
	flag.StringVar(&s.serving.Cert, "cert", "", "serving certificate")
	flag.StringVar(&s.serving.Key, "key", "", "serving key")
	flag.StringVar(&s.serving.CA, "client-ca", "", "authorities of all tenants")
	flag.StringVar(&s.kubelet.Cert, "kubelet-cert", "", "client certificate for the kubelet")
	flag.StringVar(&s.kubelet.Key, "kubelet-key", "", "client key for the kubelet")
	flag.StringVar(&s.kubelet.CA, "kubelet-ca", "", "authority of the kubelet's certificate")
	flag.Parse()
	if err := serve(s); err != nil {
		log.Fatal(err)
	}
}

func serve(s settings) error {
	known, err := readTable(s.table)
	if err != nil {
		return err
	}
	trail, err := openAudit(s.auditFile)
	if err != nil {
		return err
	}
	proxy, err := newProxy(s, trail)
	if err != nil {
		return err
	}
	serving, err := s.serving.Server()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           &gate{known: known, trail: trail, proxy: proxy},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // a client that leaves is not news
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	fmt.Println(listener.Addr())
	return server.Serve(tls.NewListener(listener, serving))
}

// gate decides and counts, and hands on what is allowed.
type gate struct {
	known    *table
	trail    *audit
	proxy    *httputil.ReverseProxy
	requests atomic.Uint64
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	d := g.known.decide(r)
	if d.reason != "" {
		g.trail.write(d, d.status)
		http.Error(w, http.StatusText(d.status), d.status)
		return
	}
	g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, d)))
}

func newProxy(s settings, trail *audit) (*httputil.ReverseProxy, error) {
	kubelet, err := s.kubelet.Client(s.serverName)
	if err != nil {
		return nil, err
	}
	kubelet.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	transport := &http.Transport{
		TLSClientConfig:     kubelet,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 only
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		// The kubelet drops an idle connection after 90 s; leaving first avoids the race.
		IdleConnTimeout:    80 * time.Second,
		DisableCompression: true,
	}
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		BufferPool:    newBuffers(),
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			d := r.In.Context().Value(decisionKey{}).(*decision)
			r.Out.URL.Scheme, r.Out.URL.Host = "https", s.upstream
			r.Out.URL.Path, r.Out.URL.RawPath, r.Out.URL.RawQuery = d.path, "", d.query
			r.Out.Host = s.upstream
			for name := range r.Out.Header {
				if isIdentityHeader(name) {
					delete(r.Out.Header, name)
				}
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			trail.write(answer.Request.Context().Value(decisionKey{}).(*decision), answer.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, err)
			}
			trail.write(r.Context().Value(decisionKey{}).(*decision), http.StatusBadGateway)
			w.WriteHeader(http.StatusBadGateway)
		},
	}, nil
}

func isIdentityHeader(name string) bool {
	return name == "Authorization" || name == "Forwarded" || strings.HasPrefix(name, "Impersonate-") ||
		strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Forwarded-") ||
		strings.HasPrefix(name, "Proxy-")
}
