// SPDX-License-Identifier: Apache-2.0

// Package tlsfiles builds the TLS settings of every program of the bench from PEM files.
//
// All of them speak TLS 1.3 with X25519 and a P-256 certificate on each side: a ratio is only about
// the proxies when the handshakes are the same.
// (Go 1.24 would choose a post-quantum key exchange between two Go programs, which OpenSSL 3.0 has not got.)
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files names a certificate with its key, and the authorities that the other side must chain to.
type Files struct {
	Cert, Key, CA string
}

func (f Files) load() (tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return tls.Certificate{}, nil, fmt.Errorf("%s: no certificate in it", f.CA)
	}
	return pair, pool, nil
}

// Server is a server that demands a client certificate of one of the authorities.
func (f Files) Server() (*tls.Config, error) {
	pair, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:     []tls.Certificate{pair},
		ClientCAs:        pool,
		ClientAuth:       tls.RequireAndVerifyClientCert,
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
		NextProtos:       []string{"http/1.1"},
	}, nil
}

// Client is a client that verifies the server under serverName.
func (f Files) Client(serverName string) (*tls.Config, error) {
	pair, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:     []tls.Certificate{pair},
		RootCAs:          pool,
		ServerName:       serverName,
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
		NextProtos:       []string{"http/1.1"},
	}, nil
}
