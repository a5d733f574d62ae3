package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"byre/bench"
	"byre/image"
)

func init() {
	register(verb{
		name:    "bench",
		summary: "run a workload on an image and measure it",
		operand: "FILE",
		common:  optFormat | optImageOpts | optForceShare | optObject | optCache | optAIO | optQuiet | optOutput | optPolicies,
		opts: []opt{
			{short: 'c', long: "count", arg: needArg, name: "COUNT", help: "number of requests (75000)"},
			{short: 'd', long: "depth", arg: needArg, name: "DEPTH", help: "requests in flight (64)"},
			{short: 'n', long: "native", help: "like -i native"},
			{short: 'o', long: "offset", arg: needArg, name: "OFFSET", help: "where the first request starts (0)"},
			{short: 's', long: "buffer-size", arg: needArg, name: "SIZE", help: "bytes of a request (4k)"},
			{short: 'S', long: "step-size", arg: needArg, name: "SIZE", help: "from one request to the next (the size of a request)"},
			{short: 'w', long: "write", help: "write instead of read; the contents of FILE are lost"},
			{long: "pattern", arg: needArg, name: "BYTE", help: "what is written (0)"},
			{long: "flush-interval", arg: needArg, name: "COUNT", help: "flush every COUNT writes, with the queue drained"},
			{long: "no-drain", help: "do not drain the queue for flushes"},
			{long: "rw", arg: needArg, name: "MODE", help: "read, write, randread, randwrite or mix (of both, random)"},
			{long: "read-share", arg: needArg, name: "PERCENT", help: "reads among the requests of mix (50)"},
			{long: "seed", arg: needArg, name: "NUMBER", help: "of random places and of what --verify writes (0)"},
			{long: "warmup", arg: needArg, name: "AMOUNT", help: "requests, or a time such as 2s, before the measurement"},
			{long: "duration", arg: needArg, name: "TIME", help: "measure for this time, seconds or such as 500ms; -c limits it if given"},
			{long: "verify", help: "write stamps (or the pattern, if given) and read them back; when reading, compare with those"},
			{long: "stats", help: "print latencies and what a request cost, too"},
		},
		min: 1, max: 1,
		note: `Requests follow each other by the step and go round at the end of FILE; one that would cross the end is
shortened. Random modes choose among the multiples of the step behind the offset.
The time is that of the requests: opening, closing and verification are not in it.`,
		run: runBench,
	})
}

func runBench(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	b, cache, err := o.benchOptions()
	if err != nil {
		return c.errorf("%v", err)
	}
	open := []image.Option{image.WithCache(cache)}
	if b.Mode.Writes() {
		open = append(open, image.Writable())
	}
	name := o.args[0]
	im, err := o.open(name, open...)
	if err != nil {
		return c.openErrorf(name, err)
	}
	if !o.json { // -q does not keep these lines back in the classic tool either
		announceBench(c, b, o.has("count"))
	}
	restore := narrow(im, b, cache, o.aio)
	res, err := bench.Run(c.Context, im.Device(), *b)
	restore()
	if cerr := im.Close(); cerr != nil && err == nil {
		return c.errorf("Could not close '%s': %s", name, reason(cerr, name))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return c.errorf("interrupted")
	case err != nil:
		return c.errorf("Failed request: %v", err)
	case o.json:
		return printBenchJSON(c, b, res)
	}
	fmt.Fprintf(c.Stdout, "Run completed in %3.3f seconds.\n", res.Elapsed.Seconds())
	if o.has("stats") {
		printBenchStats(c, res)
	}
	if b.Verify && !o.quiet {
		fmt.Fprintf(c.Stdout, "Verified %d bytes.\n", res.Verified)
	}
	return 0
}

// benchOptions decodes the workload; the sentences name the value that is wrong.
func (o *options) benchOptions() (*bench.Options, image.CacheMode, error) {
	b := &bench.Options{Count: 75000, Depth: 64, Size: 4096, ReadShare: 0.5}
	cache := o.cacheMode(o.cache, image.CacheWriteback)
	for _, p := range o.own {
		if err := o.benchOption(b, p); err != nil {
			return nil, 0, err
		}
	}
	if o.has("write") && o.has("rw") && !b.Mode.Writes() {
		return nil, 0, fmt.Errorf("-w contradicts --rw=%s", b.Mode)
	}
	if o.has("native") {
		if o.aio != "" && o.aio != "native" {
			return nil, 0, fmt.Errorf("-n contradicts -i %s", o.aio)
		}
		o.aio = "native"
	}
	if b.Duration > 0 && !o.has("count") {
		b.Count = 0
	}
	b.Latency = o.json || o.has("stats")
	switch {
	case b.Depth < 1 || b.Depth > bench.MaxDepth:
		return nil, 0, errors.New("Invalid queue depth specified")
	case b.FlushInterval > 0 && !b.Mode.Writes():
		return nil, 0, errors.New("--flush-interval is only available in write tests")
	case b.FlushInterval > 0 && b.FlushInterval < int64(b.Depth):
		return nil, 0, errors.New("Flush interval can't be smaller than depth")
	}
	return b, cache, nil
}

// benchOption decodes one option.
func (o *options) benchOption(b *bench.Options, p parsed) (err error) {
	switch p.key {
	case "count":
		b.Count, err = benchNumber(p.value, math.MaxInt32, "request count")
	case "depth":
		var n int64
		n, err = benchNumber(p.value, math.MaxInt32, "queue depth")
		b.Depth = int(n)
	case "offset":
		b.Offset, err = benchSize(p.value, math.MaxInt64, "offset")
	case "buffer-size":
		b.Size, err = benchSize(p.value, math.MaxInt32, "buffer size")
	case "step-size":
		b.Step, err = benchSize(p.value, math.MaxInt32, "step_size")
	case "write":
		if !o.has("rw") {
			b.Mode = bench.Write
		}
	case "pattern":
		var n int64
		n, err = benchNumber(p.value, 255, "pattern byte")
		b.Pattern, b.PatternSet = byte(n), true
	case "flush-interval":
		b.FlushInterval, err = benchNumber(p.value, math.MaxInt32, "flush interval")
	case "no-drain":
		b.NoDrain = true
	case "rw":
		var ok bool
		if b.Mode, ok = bench.ParseMode(p.value); !ok {
			err = fmt.Errorf("Invalid mode specified: '%s' is none of read, write, randread, randwrite, mix", p.value)
		}
	case "read-share":
		var n int64
		n, err = benchNumber(strings.TrimSuffix(p.value, "%"), 100, "share of reads")
		b.ReadShare = float64(n) / 100
	case "seed":
		if b.Seed, err = strconv.ParseUint(p.value, 0, 64); err != nil {
			err = errors.New("Invalid seed specified")
		}
	case "warmup":
		if b.Warmup, err = strconv.ParseInt(p.value, 10, 64); err != nil || b.Warmup < 0 {
			b.Warmup = 0
			b.WarmupTime, err = benchTime(p.value, "warm-up")
		}
	case "duration":
		b.Duration, err = benchTime(p.value, "duration")
		if err == nil && b.Duration == 0 {
			err = errors.New("Invalid duration specified")
		}
	case "verify":
		b.Verify = true
	}
	return err
}

// benchNumber decodes a count as strtoul does: decimal, 0x… or 0….
func benchNumber(s string, most int64, what string) (int64, error) {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("Invalid %s specified", what)
	}
	return n, nil
}

func benchSize(s string, most int64, what string) (int64, error) {
	n, err := image.ParseSize(s)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("Invalid %s specified. Must be between 0 and %d.", what, most)
	}
	return n, nil
}

// benchTime decodes a time: seconds without a unit, or as time.ParseDuration has it.
func benchTime(s, what string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < 1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("Invalid %s specified", what)
	}
	return d, nil
}

// announceBench prints the classic lines that say what is going to be done.
func announceBench(c *call, b *bench.Options, counted bool) {
	kind := map[bench.Mode]string{bench.Read: "read", bench.Write: "write", bench.RandRead: "random read",
		bench.RandWrite: "random write", bench.Mix: "random read and write"}[b.Mode]
	count := fmt.Sprintf("%d ", b.Count)
	limit := ""
	if b.Duration > 0 {
		limit = fmt.Sprintf(" for %v", b.Duration)
		if !counted {
			count = ""
		}
	}
	step := b.Step
	if step == 0 {
		step = b.Size
	}
	fmt.Fprintf(c.Stdout, "Sending %s%s requests%s, %d bytes each, %d in parallel (starting at offset %d, step size %d)\n",
		count, kind, limit, b.Size, b.Depth, b.Offset, step)
	if b.FlushInterval > 0 {
		fmt.Fprintf(c.Stdout, "Sending flush every %d requests\n", b.FlushInterval)
	}
}

// micros is a time in microseconds.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func benchLatencies(l *bench.Latency) map[string]float64 {
	if l == nil {
		return nil
	}
	return map[string]float64{"min": micros(l.Min), "mean": micros(l.Mean), "p50": micros(l.P50), "p90": micros(l.P90),
		"p95": micros(l.P95), "p99": micros(l.P99), "p99.9": micros(l.P999), "p99.99": micros(l.P9999), "max": micros(l.Max)}
}

// benchCounters are the counts of a run by name. Layers below count flushes that reached the host; the workload's own
// are the "flush-requests".
func benchCounters(res *bench.Result) map[string]float64 {
	m := map[string]float64{
		"user-seconds":       res.Usage.User,
		"system-seconds":     res.Usage.System,
		"voluntary-switches": float64(res.Usage.VoluntarySwitches),
		"forced-switches":    float64(res.Usage.ForcedSwitches),
		"flush-requests":     float64(res.Flushes),
	}
	for name, n := range res.Counters {
		m[name] = float64(n)
	}
	return m
}

func printBenchJSON(c *call, b *bench.Options, res *bench.Result) int {
	seconds := res.Elapsed.Seconds()
	rate := func(n int64) float64 {
		if seconds <= 0 {
			return 0
		}
		return float64(n) / seconds
	}
	counters := benchCounters(res)
	perRequest := map[string]float64{}
	for name, n := range counters {
		if res.Requests > 0 {
			perRequest[name] = n / float64(res.Requests)
		}
	}
	step := b.Step
	if step == 0 {
		step = b.Size
	}
	out := struct {
		RW             string             `json:"rw"`
		Depth          int                `json:"depth"`
		BufferSize     int64              `json:"buffer-size"`
		StepSize       int64              `json:"step-size"`
		Offset         int64              `json:"offset"`
		Seed           uint64             `json:"seed"`
		DurationLimit  float64            `json:"duration-limit,omitempty"`
		Requests       int64              `json:"requests"`
		Reads          int64              `json:"reads"`
		Writes         int64              `json:"writes"`
		Bytes          int64              `json:"bytes"`
		Seconds        float64            `json:"seconds"`
		IOPS           float64            `json:"iops"`
		BytesPerSecond float64            `json:"bytes-per-second"`
		Latency        map[string]float64 `json:"latency-us,omitempty"`
		Counters       map[string]float64 `json:"counters"`
		PerRequest     map[string]float64 `json:"per-request"`
		VerifiedBytes  *int64             `json:"verified-bytes,omitempty"`
	}{
		b.Mode.String(), b.Depth, b.Size, step, b.Offset, b.Seed, b.Duration.Seconds(), res.Requests, res.Reads, res.Writes,
		res.Bytes, seconds, rate(res.Requests), rate(res.Bytes), benchLatencies(res.Latency), counters, perRequest, nil,
	}
	if b.Verify {
		out.VerifiedBytes = &res.Verified
	}
	e := json.NewEncoder(c.Stdout)
	e.SetIndent("", "    ")
	if err := e.Encode(out); err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

// printBenchStats prints for people what the JSON form has.
func printBenchStats(c *call, res *bench.Result) {
	seconds := res.Elapsed.Seconds()
	if seconds > 0 {
		fmt.Fprintf(c.Stdout, "Rate: %.0f requests/s, %.1f MiB/s\n", float64(res.Requests)/seconds, float64(res.Bytes)/seconds/(1<<20))
	}
	if l := res.Latency; l != nil {
		fmt.Fprintf(c.Stdout, "Latency in µs: min %.1f, mean %.1f, p50 %.1f, p90 %.1f, p95 %.1f, p99 %.1f, p99.9 %.1f, p99.99 %.1f, max %.1f\n",
			micros(l.Min), micros(l.Mean), micros(l.P50), micros(l.P90), micros(l.P95), micros(l.P99), micros(l.P999), micros(l.P9999), micros(l.Max))
	}
	if n := float64(res.Requests); n > 0 {
		u := res.Usage
		fmt.Fprintf(c.Stdout, "Per request: %.2f µs user, %.2f µs system, %.3f voluntary and %.3f forced context switches",
			u.User/n*1e6, u.System/n*1e6, float64(u.VoluntarySwitches)/n, float64(u.ForcedSwitches)/n)
		for _, name := range []string{"syscalls", "flushes", "metadata-writes"} {
			if v, ok := res.Counters[name]; ok {
				fmt.Fprintf(c.Stdout, ", %.3f %s", float64(v)/n, name)
			}
		}
		fmt.Fprintln(c.Stdout)
	}
}
