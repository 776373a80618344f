// SPDX-License-Identifier: Apache-2.0

// Upstream is the kubelet of the bench. It shares a core with the load generator, so it does as
// little as an honest HTTP/1.1 server over mTLS can: no net/http, answers made beforehand.
//
// The pod's name chooses the answer to containerLogs:
//
//	flood-*  ?limitBytes= bytes in chunks of 32 KB with their frame
//	sized-*  1 KB with a Content-Length
//	others   with ?follow=true: chunks as those of flood-* without an end
//	others   1 KB as the kubelet sends a log: one flushed chunk, then the last chunk by itself
//
// With -bulk-aside, flood-* and follow=true are sent by threads of the idle policy: on one core they would delay
// small answers to others by up to 10 ms, which a kubelet with more cores does not.
//
// A namespace that is not one of the super cluster's is 404: a proxy that does not translate fails.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"vcnode.io/bench/tlsfiles"
)

const (
	// With its frame a chunk fills two TLS records: as much as a kubelet could send at its best.
	chunkBytes = 32<<10 - 8
	upgraded   = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
		"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
	chunkedHead = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: 00000000000000000000000000000\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n"
	notFound  = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	lastChunk = "0\r\n\r\n"
	// More than streams of any bench that send at once.
	bulkThreads = 128
)

type kubelet struct {
	namespacePrefix string
	pods, resource  []byte
	small, sized    []byte
	chunk           []byte
	isBulkAside     bool
}

func main() {
	log.SetFlags(0)
	var files tlsfiles.Files
	flag.StringVar(&files.Cert, "cert", "", "serving certificate")
	flag.StringVar(&files.Key, "key", "", "serving key")
	flag.StringVar(&files.CA, "client-ca", "", "authority of clients")
	podList := flag.String("pods", "", "PodList in JSON for /pods")
	resource := flag.String("resource", "", "page for /metrics/resource")
	prefix := flag.String("namespace-prefix", "", "what every namespace of the super cluster begins with")
	noTickets := flag.Bool("no-tickets", false, "let no client resume a session")
	bulkAside := flag.Bool("bulk-aside", false, "let small answers go before bulk data")
	flag.Parse()
	if err := serve(files, *podList, *resource, *prefix, *noTickets, *bulkAside); err != nil {
		log.Fatal(err)
	}
}

func serve(files tlsfiles.Files, podList, resourcePage, prefix string, noTickets, bulkAside bool) error {
	pods, err := os.ReadFile(podList)
	if err != nil {
		return err
	}
	resource, err := os.ReadFile(resourcePage)
	if err != nil {
		return err
	}
	settings, err := files.Server()
	if err != nil {
		return err
	}
	settings.SessionTicketsDisabled = noTickets
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	k := newKubelet(pods, resource, prefix)
	if bulkAside {
		k.isBulkAside = true
		runtime.GOMAXPROCS(bulkThreads) // a thread that has no core keeps its share of these
		// A collection stops all threads, and waits for those that have no core.
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(512 << 20)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go k.connection(tls.Server(conn, settings))
	}
}

func newKubelet(pods, resource []byte, prefix string) *kubelet {
	body := bytes.Repeat([]byte("a line of a container's log, 32\n"), 1024/32)
	return &kubelet{
		namespacePrefix: prefix,
		pods:            withLength("application/json", pods),
		resource:        withLength("text/plain; version=0.0.4; charset=utf-8", resource),
		small:           []byte(chunkedHead + chunk(body)),
		sized:           withLength("text/plain", body),
		chunk:           []byte(chunk(bytes.Repeat([]byte("x"), chunkBytes))),
	}
}

func chunk(body []byte) string {
	return strconv.FormatInt(int64(len(body)), 16) + "\r\n" + string(body) + "\r\n"
}

func withLength(kind string, body []byte) []byte {
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nDate: 00000000000000000000000000000\r\nContent-Length: %d\r\n\r\n", kind, len(body))
	return append([]byte(head), body...)
}

// dated returns an answer with the time in its Date field, as Go's server writes it: a new head every
// second.
func dated(answer []byte, scratch []byte) []byte {
	scratch = append(scratch[:0], answer...)
	at := bytes.Index(scratch, []byte("Date: ")) + len("Date: ")
	time.Now().UTC().AppendFormat(scratch[at:at], http.TimeFormat)
	return scratch
}

func (k *kubelet) connection(conn *tls.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var scratch []byte
	for {
		target, err := readTarget(in)
		if err != nil {
			return
		}
		path, query, _ := strings.Cut(target, "?")
		parts := strings.Split(path, "/")
		switch {
		case path == "/healthz":
			_, err = conn.Write(withLength("text/plain", []byte("ok")))
		case path == "/pods" || path == "/pods/":
			_, err = conn.Write(k.pods)
		case path == "/metrics/resource":
			_, err = conn.Write(k.resource)
		case len(parts) < 4 || !strings.HasPrefix(parts[2], k.namespacePrefix):
			_, err = io.WriteString(conn, notFound)
		case parts[1] == "containerLogs":
			scratch, err = k.logs(conn, parts[3], query, scratch)
		default:
			if _, err = io.WriteString(conn, upgraded); err == nil {
				_, _ = io.Copy(conn, in) // an echo, until the client leaves
			}
			return
		}
		if err != nil {
			return
		}
	}
}

func (k *kubelet) logs(conn *tls.Conn, pod, query string, scratch []byte) ([]byte, error) {
	if strings.HasPrefix(pod, "flood-") {
		return scratch, k.bulk(func() error { return k.flood(conn, query) })
	}
	if query == "follow=true" {
		return scratch, k.bulk(func() error { return k.follow(conn) })
	}
	if strings.HasPrefix(pod, "sized-") {
		scratch = dated(k.sized, scratch)
		_, err := conn.Write(scratch)
		return scratch, err
	}
	scratch = dated(k.small, scratch)
	if _, err := conn.Write(scratch); err != nil {
		return scratch, err
	}
	_, err := io.WriteString(conn, lastChunk)
	return scratch, err
}

// bulk sends much, in a thread of its own that yields the core to all others where -bulk-aside is set.
func (k *kubelet) bulk(send func() error) error {
	if !k.isBulkAside {
		return send()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		const schedIdle = 5
		var priority int32
		_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedIdle, uintptr(unsafe.Pointer(&priority)))
		if errno != 0 {
			done <- errno
			return
		}
		done <- send()
	}()
	return <-done
}

// follow sends until the client leaves.
func (k *kubelet) follow(conn *tls.Conn) error {
	_, err := conn.Write(dated([]byte(chunkedHead), nil))
	for err == nil {
		_, err = conn.Write(k.chunk)
		runtime.Gosched() // others of this one core are not to wait until the scheduler preempts it
	}
	return err
}

func (k *kubelet) flood(conn *tls.Conn, query string) error {
	limit, err := strconv.Atoi(strings.TrimPrefix(query, "limitBytes="))
	if err != nil || limit%chunkBytes != 0 {
		_, err = io.WriteString(conn, notFound)
		return err
	}
	if _, err := conn.Write(dated([]byte(chunkedHead), nil)); err != nil {
		return err
	}
	for ; limit > 0; limit -= chunkBytes {
		if _, err := conn.Write(k.chunk); err != nil {
			return err
		}
		runtime.Gosched()
	}
	_, err = io.WriteString(conn, lastChunk)
	return err
}

// readTarget reads one request head and returns its target. No request of the bench has a body.
func readTarget(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	fields := bytes.Fields(line)
	if len(fields) != 3 {
		return "", fmt.Errorf("request line %q", line)
	}
	target := string(fields[1])
	for len(line) > 2 {
		if line, err = in.ReadSlice('\n'); err != nil {
			return "", err
		}
	}
	return target, nil
}
