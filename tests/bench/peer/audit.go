// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// audit writes one JSON line a decision. As in vn-agent a line waits until the work at hand is done
// and shares a write with those that came meanwhile: one goroutine takes all that is there.
type audit struct {
	file      *os.File
	wake      chan struct{}
	mu        sync.Mutex
	waiting   []byte
	requestID uint64
}

func openAudit(path string) (*audit, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	a := &audit{file: file, wake: make(chan struct{}, 1)}
	go a.flush()
	return a, nil
}

func (a *audit) flush() {
	var taken []byte
	for range a.wake {
		a.mu.Lock()
		taken, a.waiting = a.waiting, taken[:0]
		a.mu.Unlock()
		_, _ = a.file.Write(taken) // a full disk shows elsewhere in a bench
	}
}

// write takes names that the policy has checked, so quoting as Go does is quoting as JSON does.
func (a *audit) write(d *decision, status int) {
	verdict, reason := "allow", d.reason
	if reason == "" {
		reason = "owned"
	} else {
		verdict = "deny"
	}
	a.mu.Lock()
	a.requestID++
	b := append(a.waiting, `{"time":"`...)
	b = time.Now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	for _, field := range [...][2]string{
		{"tenant", d.tenant}, {"identity", d.identity}, {"endpoint", d.endpoint}, {"namespace", d.namespace},
		{"pod", d.pod}, {"container", d.container}, {"decision", verdict}, {"reason", reason},
	} {
		b = append(b, `,"`...)
		b = append(b, field[0]...)
		b = append(b, `":`...)
		b = strconv.AppendQuote(b, field[1])
	}
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"requestId":"`...)
	b = strconv.AppendUint(b, a.requestID, 16)
	a.waiting = append(b, "\"}\n"...)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default: // it is awake, or will be
	}
}
