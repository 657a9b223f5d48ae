//go:build !linux

package main

import "time"

var started = time.Now()

// threadTime is the wall's clock where the thread's is not known.
func threadTime() int64 { return time.Since(started).Nanoseconds() }
