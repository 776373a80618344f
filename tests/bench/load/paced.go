// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// Go's own timers wake a program on an idle core up to 1 ms late (epoll_wait counts milliseconds),
// which is more than the latency to be measured. A timer descriptor is exact.
func ticks(period time.Duration) (*os.File, error) {
	const clockMonotonic = 1
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	each := syscall.NsecToTimespec(period.Nanoseconds())
	setting := struct{ interval, first syscall.Timespec }{each, each}
	_, _, errno = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&setting)), 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "timer"), nil
}

// paced sends small requests on kept connections.
func (l *load) paced() (result, error) {
	all, err := l.keepAll()
	if err != nil {
		return result{}, err
	}
	return l.atRate(func(i int) error { return all[i].ask() })
}

// echoes sends a little over tunnels that are open.
func (l *load) echoes() (result, error) {
	conns := make([]*tls.Conn, l.conns)
	readers := make([]*bufio.Reader, l.conns)
	err := together(l.conns, func(i int) (err error) {
		if conns[i], readers[i], _, err = l.setUp(); err != nil {
			return err
		}
		return echo(conns[i], readers[i])
	})
	if err != nil {
		return result{}, err
	}
	l.noteCipher(conns[0])
	return l.atRate(func(i int) error { return echo(conns[i], readers[i]) })
}

// atRate calls ask for each connection at fixed times whatever the answers do. A latency counts from the time
// at which the request should have gone, so a proxy that stalls pays for all that waited behind it.
func (l *load) atRate(ask func(i int) error) (result, error) {
	if err := waitForGo(); err != nil {
		return result{}, err
	}
	period := time.Second / time.Duration(l.rate)
	total := int(l.duration / period)
	due := make([]chan time.Time, l.conns)
	for i := range due {
		due[i] = make(chan time.Time, total/l.conns+1) // all of them: the pacer must never wait
	}
	start := time.Now()
	timer, err := ticks(period)
	if err != nil {
		return result{}, err
	}
	pacing := make(chan error, 1)
	go func() { pacing <- pace(timer, due, start, period, total) }()
	each := make([][]time.Duration, l.conns)
	err = together(l.conns, func(i int) error {
		for at := range due[i] {
			if err := ask(i); err != nil {
				return err
			}
			each[i] = append(each[i], time.Since(at))
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	if err := <-pacing; err != nil {
		return result{}, err
	}
	return l.reportAll(time.Since(start), each)
}

func pace(timer *os.File, due []chan time.Time, start time.Time, period time.Duration, total int) error {
	defer func() {
		for _, mine := range due {
			close(mine)
		}
	}()
	var expired [8]byte
	for sent := 0; sent < total; {
		if _, err := timer.Read(expired[:]); err != nil {
			return err
		}
		for n := binary.NativeEndian.Uint64(expired[:]); n > 0 && sent < total; n-- {
			due[sent%len(due)] <- start.Add(time.Duration(sent+1) * period)
			sent++
		}
	}
	return nil
}
