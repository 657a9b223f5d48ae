// Command oracle answers what Kubernetes says, in JSON Lines on standard input and output, one line
// per case, in the order they are done.
//
// To device selectors {"id","k8s","featureGates","expression","driver","device"}, where device is one of a
// ResourceSlice:
//
//	compile_error  of the environment for stored expressions, which the allocator uses
//	admission      what the API server says to a new object: ok, compile-error, too-long, too-complex
//	admission_error  its text, where that is compile-error
//	result         the allocator's answer for the device
//	eval_error     why there is none
//	cost           the estimate that admission compares with the limit
//	actual_cost    what the evaluation used
//	observed       with -repeat, all outcomes that were met
//	differs        whether the selector "witness" of the line, if any, has another outcome
//	panicked       where Kubernetes' own code did; there is no answer then
//	timed_out      true where the evaluation took longer than -timeout; there is no answer then
//
// Feature gates are the defaults of the minor that the module requires, but for those of
// "featureGates", such as {"DRAListTypeAttributes": true}.
//
// With -allocate, to questions about one node {"id","k8s","features","node","slices","classes",
// "allocated","claims"}:
//
//	allocations  one AllocationResult per claim, null where they do not fit
//	error        why the allocator refuses to say; a panic or a time-out is one, too
//	scope        of the error: pod (no other node is tried), node, panic, timeout or input
//	steps        how often the search looked for one more device
//	observed     with -repeat, all answers that were met
//
// With -speed it prints what allocating costs, with -speed-fleet what it costs in the fleet of a file;
// see speed.go and speed_fleet.go.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	longestLine = 16 << 20
	// Workers on the many small answers of one selector each; more only wait for the lock of the
	// output.
	mostWorkers   = 8
	longestRepeat = 2 * time.Second
)

var (
	repeat  = flag.Int("repeat", 1, "answer this often, and list the distinct outcomes")
	timeout = flag.Duration("timeout", 5*time.Second, "give up on one case after this long")
)

func main() {
	allocate := flag.Bool("allocate", false, "answer questions about allocations, not about selectors")
	sizes := flag.String("speed", "", "measure fleets of so many devices, as in 1000,10000, and end")
	fleetFile := flag.String("speed-fleet", "", "measure the fleet in this JSON file, and end")
	version := flag.Bool("version", false, "print the version that new expressions must suit")
	flag.Parse()
	if *version {
		fmt.Println(environment.DefaultCompatibilityVersion())
		return
	}
	if *sizes != "" {
		if err := measure(*sizes); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		return
	}
	if *fleetFile != "" {
		if err := measureFleet(*fleetFile); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		return
	}
	answer := answerSelector
	if *allocate {
		answer = answerAllocation
	}
	if err := answerAll(answer); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func answerAll(answer func(line []byte) any) error {
	lines := make(chan []byte, 64)
	out := newWriter(os.Stdout)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), mostWorkers) {
		workers.Go(func() {
			for line := range lines {
				out.write(answer(line))
			}
		})
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), longestLine)
	for in.Scan() {
		lines <- append([]byte(nil), in.Bytes()...)
	}
	close(lines)
	workers.Wait()
	if err := in.Err(); err != nil {
		return err
	}
	return out.flush()
}

type writer struct {
	mutex   sync.Mutex
	buffer  *bufio.Writer
	encoder *json.Encoder
}

func newWriter(file *os.File) *writer {
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	return &writer{buffer: buffer, encoder: encoder}
}

// write cannot fail before flush says so: bufio remembers its first error.
func (w *writer) write(answer any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_ = w.encoder.Encode(answer)
}

func (w *writer) flush() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.buffer.Flush()
}
