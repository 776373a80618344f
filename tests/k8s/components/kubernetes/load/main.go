// SPDX-License-Identifier: Apache-2.0

// A client of one API server, as controllers are one: client-go with its own retries and no others.
//
//	client-load --kubeconfig=FILE [--namespace=NS] [--workers=3]
//
// Until SIGTERM each worker creates, reads, lists and deletes ConfigMaps. One more requests a token of the
// namespace's account `default` each second, and uses all of them in turn: none may die before its end. The last
// one watches ConfigMaps, and opens the watch again when the server ends it. What counts is on standard output, as
// JSON: after the first round of each worker one line `{"started": true}`, at the end the report.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	shownFailures = 20
	pause         = 50 * time.Millisecond
	tokenPause    = time.Second
	tokenSeconds  = int64(3600)
	listed        = "app=client-load"
)

type report struct {
	Requests  int      `json:"requests"`
	Failed    int      `json:"failed"`
	SlowestMs int64    `json:"slowestMs"`
	Tokens    int      `json:"tokens"`
	Watches   int      `json:"watches"`
	Failures  []string `json:"failures"`
}

type load struct {
	config    *rest.Config
	namespace string
	client    core.CoreV1Interface

	mutex  sync.Mutex
	report report
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the client's kubeconfig")
	namespace := flag.String("namespace", "default", "where it works")
	workers := flag.Int("workers", 3, "how many requests at once")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string, workers int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The limit of requests a second is client-go's; it must not be what the report shows.
	config.QPS, config.Burst = 500, 500
	client, err := core.NewForConfig(config)
	if err != nil {
		return err
	}
	made := &load{config: config, namespace: namespace, client: client, report: report{Failures: []string{}}}
	until, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var all, first sync.WaitGroup
	for number := range workers {
		all.Add(1)
		first.Add(1)
		go func() {
			defer all.Done()
			made.work(until, number, first.Done)
		}()
	}
	all.Add(2)
	first.Add(1)
	go func() { defer all.Done(); made.useTokens(until, first.Done) }()
	go func() { defer all.Done(); made.watch(until) }()
	first.Wait()
	fmt.Println(`{"started": true}`)
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(made.report)
}

// ask counts one request. What the end of the run interrupts is no failure.
func (l *load) ask(what string, request func(context.Context) error) bool {
	began := time.Now()
	// Longer than a restart, shorter than a test: a request that hangs is a failure too.
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := request(within)
	took := time.Since(began)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.report.Requests++
	l.report.SlowestMs = max(l.report.SlowestMs, took.Milliseconds())
	if err == nil {
		return true
	}
	l.report.Failed++
	if len(l.report.Failures) < shownFailures {
		at := began.UTC().Format("15:04:05.000")
		l.report.Failures = append(l.report.Failures, fmt.Sprintf("%s %s after %s: %v", at, what, took.Round(time.Millisecond), err))
	}
	return false
}

func (l *load) work(until context.Context, number int, first func()) {
	maps := l.client.ConfigMaps(l.namespace)
	once := sync.OnceFunc(first)
	for round := 0; until.Err() == nil; round++ {
		name := fmt.Sprintf("client-load-%d-%d", number, round)
		l.ask("create", func(within context.Context) error {
			value := &corev1.ConfigMap{Data: map[string]string{"round": fmt.Sprint(round)}}
			value.Name, value.Labels = name, map[string]string{"app": "client-load"}
			_, err := maps.Create(within, value, metav1.CreateOptions{})
			return err
		})
		l.ask("get", func(within context.Context) error {
			_, err := maps.Get(within, name, metav1.GetOptions{})
			return err
		})
		l.ask("list", func(within context.Context) error {
			_, err := maps.List(within, metav1.ListOptions{LabelSelector: listed})
			return err
		})
		l.ask("delete", func(within context.Context) error {
			return maps.Delete(within, name, metav1.DeleteOptions{})
		})
		once()
		wait(until, pause)
	}
	once()
}

func (l *load) useTokens(until context.Context, first func()) {
	once := sync.OnceFunc(first)
	var tokens []string
	for round := 0; until.Err() == nil; round++ {
		l.ask("request a token", func(within context.Context) error {
			seconds := tokenSeconds
			spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}
			made, err := l.client.ServiceAccounts(l.namespace).CreateToken(
				within, "default", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
			if err == nil {
				tokens = append(tokens, made.Status.Token)
			}
			return err
		})
		if len(tokens) > 0 {
			// The oldest and the newest, and all between in turn.
			for _, number := range []int{0, round % len(tokens), len(tokens) - 1} {
				l.ask(fmt.Sprintf("use token %d of %d", number+1, len(tokens)), func(within context.Context) error {
					return l.review(within, tokens[number])
				})
			}
		}
		l.mutex.Lock()
		l.report.Tokens = len(tokens)
		l.mutex.Unlock()
		once()
		wait(until, tokenPause)
	}
	once()
}

// review asks the server who the bearer of the token is.
func (l *load) review(within context.Context, token string) error {
	config := rest.AnonymousClientConfig(l.config)
	config.BearerToken = token
	client, err := authentication.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.SelfSubjectReviews().Create(within, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// watch counts opened watches. A server that ends one is no failure; one that refuses the next is.
func (l *load) watch(until context.Context) {
	for until.Err() == nil {
		var opened watch.Interface
		isOpen := l.ask("watch", func(context.Context) error {
			var err error
			// Not the request's own deadline: a watch lasts as long as the server lets it.
			opened, err = l.client.ConfigMaps(l.namespace).Watch(until, metav1.ListOptions{LabelSelector: listed})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
		if isOpen && opened != nil {
			l.mutex.Lock()
			l.report.Watches++
			l.mutex.Unlock()
			for range opened.ResultChan() {
			}
		}
		wait(until, pause)
	}
}

func wait(until context.Context, long time.Duration) {
	select {
	case <-until.Done():
	case <-time.After(long):
	}
}
