// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"os"
	"time"
)

// setUp opens one tunnel and returns how long it took from the first packet to the whole 101.
func (l *load) setUp() (*tls.Conn, *bufio.Reader, time.Duration, error) {
	start := time.Now()
	conn, err := l.dial()
	if err != nil {
		return nil, nil, 0, err
	}
	in, err := upgrade(conn, l.targets[0], l.address)
	if err != nil {
		_ = conn.Close()
		return nil, nil, 0, err
	}
	return conn, in, time.Since(start), nil
}

func (l *load) exec() (result, error) {
	if err := l.tryOne(); err != nil {
		return result{}, err
	}
	if err := waitForGo(); err != nil {
		return result{}, err
	}
	start := time.Now()
	end := start.Add(l.duration)
	each := make([][]time.Duration, l.conns)
	err := together(l.conns, func(i int) error {
		for time.Now().Before(end) {
			conn, _, took, err := l.setUp()
			if err != nil {
				return err
			}
			_ = conn.Close()
			each[i] = append(each[i], took)
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	return l.reportAll(time.Since(start), each)
}

// tryOne sees that a tunnel carries bytes before many are opened and closed unused.
func (l *load) tryOne() error {
	conn, in, _, err := l.setUp()
	if err != nil {
		return err
	}
	defer conn.Close()
	l.noteCipher(conn)
	return echo(conn, in)
}

// tunnels opens them four at a time, tries each, and holds them until standard input ends.
func (l *load) tunnels() (result, error) {
	if err := waitForGo(); err != nil {
		return result{}, err
	}
	start := time.Now()
	const atOnce = 4
	conns := make([]*tls.Conn, l.conns)
	readers := make([]*bufio.Reader, l.conns)
	err := together(atOnce, func(worker int) (err error) {
		for i := worker; i < l.conns; i += atOnce {
			if conns[i], readers[i], _, err = l.setUp(); err != nil {
				return err
			}
			if err = echo(conns[i], readers[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	l.noteCipher(conns[0])
	done, err := l.report(result{Operations: l.conns, Seconds: time.Since(start).Seconds()}, nil)
	if err != nil {
		return done, err
	}
	if _, err = io.Copy(io.Discard, os.Stdin); err != nil {
		return done, err
	}
	for i, conn := range conns { // still alive after the rest?
		if err := echo(conn, readers[i]); err != nil {
			return done, err
		}
		_ = conn.Close()
	}
	return done, nil
}
