// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
)

// get asks for target and returns the body of a 200 answer, in whatever framing it comes.
func get(conn io.ReadWriter, target, host string) (io.Reader, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, host); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 64<<10), nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer %s", answer.Status)
	}
	return answer.Body, nil
}

// upgrade asks for an exec and returns when the other side has switched to the stream protocol. The
// reader holds what came behind the head.
func upgrade(conn io.ReadWriter, target, host string) (*bufio.Reader, error) {
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\n\r\n", target, host)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 512)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("answer %s", answer.Status)
	}
	return in, nil
}

// echo sends a little and waits for it to come back: a tunnel that is open carries bytes both ways.
func echo(conn io.Writer, in io.Reader) error {
	const sent = "64 bytes there and back, so that a tunnel is one not only by name"
	if _, err := io.WriteString(conn, sent); err != nil {
		return err
	}
	received := make([]byte, len(sent))
	if _, err := io.ReadFull(in, received); err != nil {
		return err
	}
	if string(received) != sent {
		return fmt.Errorf("tunnel gave back %q", received)
	}
	return nil
}
