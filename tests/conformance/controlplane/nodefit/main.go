// Command nodefit answers which nodes take a pod, by kube-scheduler's own plugins.
//
// It reads one question a line: a pod, the nodes, the pods that are bound to them, and the
// DeviceClasses. It answers with what keeps the pod off each node, by predicate; an empty list
// means that the node takes it; and with the pods as the API server stores them, defaulted.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const longestLine = 16 << 20

type question struct {
	ID      string                     `json:"id"`
	Pod     *corev1.Pod                `json:"pod"`
	Nodes   []*corev1.Node             `json:"nodes"`
	Pods    []*corev1.Pod              `json:"pods"`
	Classes []*resourceapi.DeviceClass `json:"classes"`
}

type answer struct {
	ID string `json:"id"`
	// Fails has the predicates that keep the pod off each node.
	Fails map[string][]string `json:"fails,omitempty"`
	Pod   *corev1.Pod         `json:"pod,omitempty"`
	Pods  []*corev1.Pod       `json:"pods,omitempty"`
	Error string              `json:"error,omitempty"`
}

func main() {
	if err := answerAll(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "nodefit:", err)
		os.Exit(1)
	}
}

func answerAll(ctx context.Context) error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<20), longestLine)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	for lines.Scan() {
		if err := encoder.Encode(answered(ctx, lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answered(ctx context.Context, line []byte) answer {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	fails, err := decide(ctx, &asked)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	return answer{ID: asked.ID, Fails: fails, Pod: asked.Pod, Pods: asked.Pods}
}

func decide(ctx context.Context, asked *question) (map[string][]string, error) {
	predicates, err := newPredicates(ctx, asked.Classes)
	if err != nil {
		return nil, err
	}
	for _, pod := range append([]*corev1.Pod{asked.Pod}, asked.Pods...) {
		if err := store(pod); err != nil {
			return nil, err
		}
	}
	nodes := nodeInfos(asked)
	fails := make(map[string][]string, len(nodes))
	for _, node := range nodes {
		fails[node.Node().Name] = []string{}
	}
	for _, one := range predicates {
		for node, found := range one.fails(ctx, asked.Pod, nodes) {
			fails[node] = append(fails[node], found...)
		}
	}
	return fails, nil
}

// nodeInfos is the scheduler's view of the nodes, as its cache keeps it: pods that ended count no
// more, because its informer leaves them out.
func nodeInfos(asked *question) []fwk.NodeInfo {
	bound := map[string][]*corev1.Pod{}
	for _, pod := range asked.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			bound[pod.Spec.NodeName] = append(bound[pod.Spec.NodeName], pod)
		}
	}
	infos := make([]fwk.NodeInfo, 0, len(asked.Nodes))
	for _, node := range asked.Nodes {
		defaults.SetObjectDefaults_Node(node)
		info := framework.NewNodeInfo(bound[node.Name]...)
		info.SetNode(node)
		infos = append(infos, info)
	}
	return infos
}
