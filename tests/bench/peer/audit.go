// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"strconv"
	"sync"
	"time"
)

// audit writes one JSON line a decision. A flush interval of 0 writes each line at once.
type audit struct {
	mu        sync.Mutex
	out       *bufio.Writer
	line      []byte
	requestID uint64
	immediate bool
}

func openAudit(path string, flush time.Duration) (*audit, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	a := &audit{out: bufio.NewWriterSize(file, 64<<10), immediate: flush == 0}
	if flush > 0 {
		go func() {
			for range time.Tick(flush) {
				a.mu.Lock()
				_ = a.out.Flush() // a bench that fills the disk shows it elsewhere
				a.mu.Unlock()
			}
		}()
	}
	return a, nil
}

// write takes names that the policy has checked, so quoting as Go does is quoting as JSON does.
func (a *audit) write(d *decision, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requestID++
	verdict, reason := "allow", d.reason
	if reason == "" {
		reason = "owned"
	} else {
		verdict = "deny"
	}
	b := append(a.line[:0], `{"time":"`...)
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
	b = append(b, "\"}\n"...)
	a.line = b
	_, _ = a.out.Write(b)
	if a.immediate {
		_ = a.out.Flush()
	}
}
