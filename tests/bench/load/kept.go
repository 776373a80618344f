// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

const smallBytes = 1024

// kept is one keep-alive connection that asks for small logs, another one each time. It reads answers
// by hand: net/http would take more of the core that it shares with the kubelet than that does.
type kept struct {
	conn     *tls.Conn
	in       *bufio.Reader
	requests [][]byte
	asked    int
	small    int
}

func (l *load) keep(first int) (*kept, error) {
	conn, err := l.dial()
	if err != nil {
		return nil, err
	}
	k := &kept{conn: conn, in: bufio.NewReader(conn), asked: first, small: l.small}
	for _, target := range l.targets {
		// The headers are those that a kube-apiserver's log request carries.
		head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kube-apiserver/v1.36.0 (linux/amd64) kubernetes/0000000\r\n"+
			"Accept-Encoding: gzip\r\n\r\n", target, l.address)
		k.requests = append(k.requests, []byte(head))
	}
	return k, k.ask() // the first is not measured: it also opens the proxy's upstream connection
}

func (l *load) keepAll() ([]*kept, error) {
	all := make([]*kept, l.conns)
	err := together(l.conns, func(i int) (err error) {
		all[i], err = l.keep(i * len(l.targets) / l.conns)
		return err
	})
	if err == nil {
		l.noteCipher(all[0].conn)
	}
	return all, err
}

func (k *kept) ask() error {
	request := k.requests[k.asked%len(k.requests)]
	k.asked++
	if _, err := k.conn.Write(request); err != nil {
		return err
	}
	got, err := readAnswer(k.in)
	if err == nil && k.small != 0 && got != k.small {
		err = fmt.Errorf("body of %d bytes, not %d", got, k.small)
	}
	return err
}

// readAnswer reads one 200 answer and returns the length of its body.
func readAnswer(in *bufio.Reader) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return 0, fmt.Errorf("answer %q", line)
	}
	length, isChunked := -1, false
	for len(line) > 2 {
		if line, err = in.ReadSlice('\n'); err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			isChunked = true
		}
	}
	if isChunked {
		return discardChunks(in)
	}
	if length < 0 {
		return 0, errors.New("answer with neither length nor chunks on a kept connection")
	}
	return in.Discard(length)
}

func discardChunks(in *bufio.Reader) (int, error) {
	total := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return 0, err
		}
		if _, err := in.Discard(int(size) + 2); err != nil {
			return 0, err
		}
		if size == 0 {
			return total, nil
		}
		total += int(size)
	}
}

func (l *load) requests() (result, error) {
	all, err := l.keepAll()
	if err != nil {
		return result{}, err
	}
	if err := waitForGo(); err != nil {
		return result{}, err
	}
	start := time.Now()
	end := start.Add(l.duration)
	each := make([][]time.Duration, l.conns)
	err = together(l.conns, func(i int) error {
		for now := time.Now(); now.Before(end); {
			if err := all[i].ask(); err != nil {
				return err
			}
			then := now
			now = time.Now()
			each[i] = append(each[i], now.Sub(then))
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	return l.reportAll(time.Since(start), each)
}

func (l *load) reportAll(took time.Duration, each [][]time.Duration) (result, error) {
	var latencies []time.Duration
	for _, mine := range each {
		latencies = append(latencies, mine...)
	}
	return l.report(result{Operations: len(latencies), Seconds: took.Seconds()}, latencies)
}

// stream downloads l.bytes on each connection at once, each on a connection that is already up.
func (l *load) stream() (result, error) {
	all := make([]*tls.Conn, l.conns)
	err := together(l.conns, func(i int) (err error) {
		all[i], err = l.dial()
		return err
	})
	if err != nil {
		return result{}, err
	}
	l.noteCipher(all[0])
	if err := waitForGo(); err != nil {
		return result{}, err
	}
	start := time.Now()
	err = together(l.conns, func(i int) error { return l.download(all[i]) })
	if err != nil {
		return result{}, err
	}
	return l.report(result{Operations: l.conns, Bytes: int64(l.conns) * l.bytes, Seconds: time.Since(start).Seconds()}, nil)
}

func (l *load) download(conn io.ReadWriter) error {
	answer, err := get(conn, l.targets[0], l.address)
	if err != nil {
		return err
	}
	got, err := discard(answer)
	if err == nil && got != l.bytes {
		err = fmt.Errorf("stream of %d bytes, not %d", got, l.bytes)
	}
	return err
}
