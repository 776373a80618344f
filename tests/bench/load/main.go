// SPDX-License-Identifier: Apache-2.0

// Load is the tenant's apiserver of the bench: one kind of load a run, chosen by -mode.
//
//	requests  closed loop of small log requests on -conns kept connections
//	paced     open loop at -rate requests a second over -conns kept connections
//	stream    -conns downloads at once, -bytes each
//	exec      closed loop of exec set-ups, -conns at once, each on a connection of its own
//	echoes    open loop of -rate echoes a second over -conns exec tunnels
//	tunnels   -conns exec tunnels that stay open and idle
//
// The driver measures the proxy's CPU time from outside, so what comes before the measured part must
// be over by then: load prints "ready" when its connections stand, begins when a line arrives on its
// standard input, and prints one JSON object when it is done. Tunnels stay until standard input ends.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"vcnode.io/bench/tlsfiles"
)

// result is what the driver reads. Latencies are in microseconds.
type result struct {
	Operations int     `json:"operations"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Cipher     string  `json:"cipher"`
}

type load struct {
	address  string
	targets  []string
	tls      *tls.Config
	conns    int
	rate     int
	bytes    int64
	small    int
	duration time.Duration
	cipher   string
}

func main() {
	log.SetFlags(0)
	var files tlsfiles.Files
	var l load
	mode := flag.String("mode", "", "requests, paced, echoes, stream, exec or tunnels")
	name := flag.String("server-name", "", "name in the server's certificate")
	flag.StringVar(&files.Cert, "cert", "", "client certificate")
	flag.StringVar(&files.Key, "key", "", "client key")
	flag.StringVar(&files.CA, "ca", "", "authority of the server")
	flag.StringVar(&l.address, "address", "", "host:port of the proxy, or of the kubelet itself")
	targets := flag.String("targets", "", "file of request targets, one a line; connections go round them")
	flag.IntVar(&l.conns, "conns", 1, "connections, downloads or set-ups at once")
	flag.IntVar(&l.rate, "rate", 2000, "requests or echoes a second (paced, echoes)")
	flag.Int64Var(&l.bytes, "bytes", 0, "body bytes a download must have (stream)")
	flag.IntVar(&l.small, "small", smallBytes, "body bytes that each small answer must have, 0: any (requests, paced)")
	flag.DurationVar(&l.duration, "duration", time.Second, "length of the measured part")
	flag.Parse()
	settings, err := files.Client(*name)
	if err != nil {
		log.Fatal(err)
	}
	l.tls = settings
	text, err := os.ReadFile(*targets)
	if err != nil {
		log.Fatal(err)
	}
	l.targets = strings.Fields(string(text))
	modes := map[string]func() (result, error){
		"requests": l.requests, "paced": l.paced, "echoes": l.echoes, "stream": l.stream, "exec": l.exec, "tunnels": l.tunnels,
	}
	run, known := modes[*mode]
	if !known {
		log.Fatalf("no mode %q", *mode)
	}
	if _, err := run(); err != nil {
		log.Fatalf("load %s: %v", *mode, err)
	}
}

// waitForGo tells the driver that all is prepared, and returns when it says so.
func waitForGo() error {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// report prints the figures of one measured part.
func (l *load) report(r result, latencies []time.Duration) (result, error) {
	slices.Sort(latencies)
	r.P50, r.P99 = quantile(latencies, 0.50), quantile(latencies, 0.99)
	r.Cipher = l.cipher
	return r, json.NewEncoder(os.Stdout).Encode(r)
}

func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))].Nanoseconds()) / 1000
}

// together runs n workers and returns the first error of any.
func together(n int, worker func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- worker(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *load) dial() (*tls.Conn, error) {
	conn, err := tls.Dial("tcp", l.address, l.tls)
	if err != nil {
		return nil, err
	}
	// A proxy that hangs must end the bench with a word, not hold it for ever.
	return conn, conn.SetDeadline(time.Now().Add(l.duration + time.Minute))
}

func (l *load) noteCipher(conn *tls.Conn) {
	l.cipher = tls.CipherSuiteName(conn.ConnectionState().CipherSuite)
}

func discard(r io.Reader) (int64, error) { return io.Copy(io.Discard, r) }
