// SPDX-License-Identifier: Apache-2.0

// Records what Kubernetes itself makes of objects and patches, for tests/unit/syncer/policy/test_quota_recorded.py:
// the defaults of the API server, its strategic merge and merge patches, and what its quota counts afterwards.
//
//	go run -C tests/k8s/components/kubernetes ./quota < cases.json > recorded.json
package main

import (
	"encoding/json"
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	v1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
)

type patch struct {
	Type string          `json:"type"`
	Body json.RawMessage `json:"body"`
}

type answer struct {
	Case    json.RawMessage   `json:"case"`
	Usage   map[string]string `json:"usage"`
	Missing string            `json:"missing,omitempty"`
	Error   string            `json:"error,omitempty"`
}

var required = []corev1.ResourceName{"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}

func main() {
	var cases []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := make([]answer, 0, len(cases))
	for _, raw := range cases {
		found := answer{Case: raw}
		if err := found.evaluate(raw); err != nil {
			found.Error = err.Error()
		}
		answers = append(answers, found)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	if err := out.Encode(answers); err != nil {
		panic(err)
	}
}

func (a *answer) evaluate(raw json.RawMessage) error {
	var each struct {
		Kind    string          `json:"kind"`
		Object  json.RawMessage `json:"object"`
		Patches []patch         `json:"patches"`
	}
	if err := json.Unmarshal(raw, &each); err != nil {
		return err
	}
	var value runtime.Object
	var evaluator quota.Evaluator
	switch each.Kind {
	case "Pod":
		value, evaluator = &corev1.Pod{}, core.NewPodEvaluator(nil, clock.RealClock{})
	case "Service":
		value, evaluator = &corev1.Service{}, core.NewServiceEvaluator(nil)
	case "PersistentVolumeClaim":
		value, evaluator = &corev1.PersistentVolumeClaim{}, core.NewPersistentVolumeClaimEvaluator(nil)
	default:
		return fmt.Errorf("unknown kind %s", each.Kind)
	}
	content := []byte(each.Object)
	for _, change := range each.Patches {
		var err error
		if change.Type == "strategic" {
			content, err = strategicpatch.StrategicMergePatch(content, change.Body, value)
		} else {
			content, err = jsonpatch.MergePatch(content, change.Body)
		}
		if err != nil {
			return err
		}
	}
	if err := json.Unmarshal(content, value); err != nil {
		return err
	}
	if pod, ok := value.(*corev1.Pod); ok {
		v1defaults.SetDefaults_Pod(pod)
		if err := evaluator.Constraints(required, pod); err != nil {
			a.Missing = err.Error()
		}
	}
	used, err := evaluator.Usage(value)
	if err != nil {
		return err
	}
	a.Usage = map[string]string{}
	for name, amount := range used {
		a.Usage[string(name)] = amount.String()
	}
	return nil
}
