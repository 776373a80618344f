// SPDX-License-Identifier: Apache-2.0

// Ttrpcpeer is the other end for vcnode's ttrpc: the real implementation, as server and as client.
//
//	ttrpcpeer serve SOCKET    serves trial.Trial until its standard input ends
//	ttrpcpeer call SOCKET     calls trial.Trial as the lines of its standard input say
//
// A line of `call` is a JSON object (order); for each, one with what became of it is printed (outcome),
// as soon as it is known. Lines are called at once, not one after the other.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const service = "trial.Trial"

type order struct {
	ID        int    `json:"id"`
	Service   string `json:"service"`
	Method    string `json:"method"`
	Text      string `json:"text"`
	Size      int    `json:"size"` // this many bytes instead of the text
	TimeoutMS int    `json:"timeout_ms"`
}

type outcome struct {
	ID      int    `json:"id"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Text    string `json:"text"` // of a short answer
	Size    int    `json:"size"`
	IsEcho  bool   `json:"is_echo"`
	TookMS  int64  `json:"took_ms"`
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: ttrpcpeer serve|call SOCKET"))
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2])
	case "call":
		call(os.Args[2])
	}
}

func serve(path string) {
	server, err := ttrpc.NewServer()
	if err != nil {
		fail(err)
	}
	server.RegisterService(service, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Echo":     method(func(_ context.Context, given []byte) ([]byte, error) { return given, nil }),
		"Large":    method(large),
		"Sleep":    method(sleep),
		"Refuse":   method(refuse),
		"Metadata": method(metadata),
	}})
	listener, err := net.Listen("unix", path)
	if err != nil {
		fail(err)
	}
	go server.Serve(context.Background(), listener)
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString(0)
}

func method(run func(context.Context, []byte) ([]byte, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(interface{}) error) (interface{}, error) {
		var given wrapperspb.BytesValue
		if err := unmarshal(&given); err != nil {
			return nil, err
		}
		answer, err := run(ctx, given.Value)
		if err != nil {
			return nil, err
		}
		return wrapperspb.Bytes(answer), nil
	}
}

// large answers with as many bytes as the text says.
func large(_ context.Context, given []byte) ([]byte, error) {
	size, err := strconv.Atoi(string(given))
	return make([]byte, size), err
}

// sleep answers after so many milliseconds, whatever its caller's timeout.
func sleep(_ context.Context, given []byte) ([]byte, error) {
	milliseconds, err := strconv.Atoi(string(given))
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	return given, err
}

// refuse answers "CODE TEXT" with that status.
func refuse(_ context.Context, given []byte) ([]byte, error) {
	code, text, _ := strings.Cut(string(given), " ")
	number, err := strconv.Atoi(code)
	if err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Code(number), text)
}

// metadata answers with what came under that key, and the deadline in milliseconds.
func metadata(ctx context.Context, given []byte) ([]byte, error) {
	value, _ := ttrpc.GetMetadataValue(ctx, string(given))
	deadline, ok := ctx.Deadline()
	if !ok {
		return []byte(value + " none"), nil
	}
	return fmt.Appendf(nil, "%s %d", value, time.Until(deadline).Milliseconds()), nil
}

func call(path string) {
	connection, err := net.Dial("unix", path)
	if err != nil {
		fail(err)
	}
	client := ttrpc.NewClient(connection)
	defer client.Close()
	var printing sync.Mutex
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var given order
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			fail(err)
		}
		running.Add(1)
		go func() {
			defer running.Done()
			done := callOne(client, given)
			printing.Lock()
			defer printing.Unlock()
			json.NewEncoder(os.Stdout).Encode(done)
		}()
	}
	running.Wait()
}

func callOne(client *ttrpc.Client, given order) outcome {
	ctx := context.Background()
	if given.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(given.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	payload := []byte(given.Text)
	if given.Size > 0 {
		payload = bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6}, given.Size/7+1)[:given.Size]
	}
	var answer wrapperspb.BytesValue
	name := service
	if given.Service != "" {
		name = given.Service
	}
	started := time.Now()
	err := client.Call(ctx, name, given.Method, wrapperspb.Bytes(payload), &answer)
	done := outcome{
		ID:     given.ID,
		Code:   int(status.Code(err)),
		Size:   len(answer.Value),
		IsEcho: bytes.Equal(answer.Value, payload),
		TookMS: time.Since(started).Milliseconds(),
	}
	if len(answer.Value) < 1000 {
		done.Text = string(answer.Value)
	}
	if err != nil {
		done.Message = err.Error()
		if from, ok := status.FromError(err); ok {
			done.Message = from.Message()
		}
	}
	return done
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
