package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	ID         string             `json:"id"`
	Kubernetes string             `json:"k8s"`
	Expression string             `json:"expression"`
	Driver     string             `json:"driver"`
	Device     resourceapi.Device `json:"device"`
	// FeatureGates are those that are not as the minor has them by default.
	FeatureGates map[string]bool `json:"featureGates"`
	// Witness is another selector for the same device.
	Witness string `json:"witness"`
}

type answer struct {
	ID             string  `json:"id"`
	CompileError   *string `json:"compile_error"`
	Admission      string  `json:"admission"`
	AdmissionError *string `json:"admission_error"`
	Result         *bool   `json:"result"`
	EvalError      *string `json:"eval_error"`
	Cost           *uint64 `json:"cost"`
	ActualCost     *uint64 `json:"actual_cost"`
	TimedOut       bool    `json:"timed_out"`
	BadInput       *string `json:"bad_input"`
	Panicked       *string `json:"panicked"`
	// Observed holds the distinct outcomes of -repeat evaluations: Go visits maps in random order.
	Observed []outcome `json:"observed,omitempty"`
	// Differs says whether the witness gives another outcome.
	Differs *bool `json:"differs,omitempty"`
}

type outcome struct {
	Result     *bool   `json:"result"`
	EvalError  *string `json:"eval_error"`
	ActualCost *uint64 `json:"actual_cost"`
}

// answerSelector leaves a case that takes too long running: cel-go looks at its context only between
// the steps of a comprehension, not inside a function.
func answerSelector(line []byte) any {
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() { done <- answerOne(ctx, line) }()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
		var q question
		_ = json.Unmarshal(line, &q)
		return answer{ID: q.ID, TimedOut: true}
	}
}

func answerOne(ctx context.Context, line []byte) answer {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		text := err.Error()
		return answer{ID: q.ID, BadInput: &text}
	}
	a := answer{ID: q.ID}
	admit(&a, q)
	evaluate(ctx, &a, q)
	if q.Witness != "" {
		var other answer
		q.Expression = q.Witness
		evaluate(ctx, &other, q)
		differs := decision(a) != decision(other)
		a.Differs = &differs
	}
	return a
}

// decision tells compile errors, whose texts name positions, only from other outcomes.
func decision(a answer) string {
	switch {
	case a.Panicked != nil:
		return "panic"
	case a.CompileError != nil:
		return "compile error"
	case a.EvalError != nil:
		return *a.EvalError
	default:
		return fmt.Sprint(*a.Result)
	}
}

// noting keeps a panic of Kubernetes' own code for the answer.
func noting(a *answer) {
	if reason := recover(); reason != nil {
		text := fmt.Sprint(reason)
		a.Panicked = &text
	}
}

// admit says what ValidateResourceClaim does with an expression in a new object.
func admit(a *answer, q question) {
	defer noting(a)
	if len(q.Expression) > resourceapi.CELSelectorExpressionMaxLength {
		a.Admission = "too-long"
		return
	}
	envType := environment.NewExpressions
	program := dracel.GetCompiler(features(q.FeatureGates)).CompileCELExpression(q.Expression, dracel.Options{EnvType: &envType})
	switch {
	case program.Error != nil:
		text := program.Error.Detail
		a.Admission, a.AdmissionError = "compile-error", &text
	case program.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		a.Admission = "too-complex"
	default:
		a.Admission = "ok"
	}
}

func evaluate(ctx context.Context, a *answer, q question) {
	defer noting(a)
	program := dracel.GetCompiler(features(q.FeatureGates)).CompileCELExpression(q.Expression, dracel.Options{})
	if program.Error != nil {
		text := program.Error.Detail
		a.CompileError = &text
		return
	}
	a.Cost = &program.MaxCost
	seen := map[string]bool{}
	for began, n := time.Now(), 0; n < *repeat && time.Since(began) < longestRepeat; n++ {
		found := matched(ctx, program, q)
		key := fmt.Sprintf("%v %v %v", found.Result != nil && *found.Result, found.EvalError != nil, costOf(found))
		if !seen[key] {
			seen[key] = true
			a.Observed = append(a.Observed, found)
		}
	}
	a.Result, a.EvalError, a.ActualCost = a.Observed[0].Result, a.Observed[0].EvalError, a.Observed[0].ActualCost
	if *repeat == 1 {
		a.Observed = nil
	}
}

func costOf(found outcome) string {
	if found.ActualCost == nil {
		return "none"
	}
	return fmt.Sprint(*found.ActualCost)
}

func matched(ctx context.Context, program dracel.CompilationResult, q question) outcome {
	var found outcome
	matches, details, err := program.DeviceMatches(ctx, dracel.Device{
		Driver:                   q.Driver,
		AllowMultipleAllocations: q.Device.AllowMultipleAllocations,
		Attributes:               q.Device.Attributes,
		Capacity:                 q.Device.Capacity,
	})
	if details != nil {
		found.ActualCost = details.ActualCost()
	}
	if err != nil {
		text := err.Error()
		found.EvalError = &text
	} else {
		found.Result = &matches
	}
	return found
}
