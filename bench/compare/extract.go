package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Extractor finds the measurement in what a command printed. The zero value looks for, in this order, the line "Run
// completed in N seconds.", the JSON of byre's bench, and that of fio.
type Extractor struct {
	// Pattern, if set, is what to look for instead: the first group (or the one named seconds or iops) is the number.
	Pattern *regexp.Regexp
	// Dimension is that of the number that Pattern finds; for the other forms it asks for this one where both are known.
	Dimension string
	// Wall takes the duration of the whole script.
	Wall bool
}

var (
	completedLine = regexp.MustCompile(`Run completed in ([0-9.]+) seconds\.`)
	sendingLine   = regexp.MustCompile(`Sending ([0-9]+) `)
)

// extract fills in the measurement of a run that ended well, or its Error.
func (e *Extractor) extract(run *Run, stdout, combined []byte) {
	var err error
	switch {
	case e.Wall:
		err = e.setSeconds(run, run.Usage.Wall, 0)
	case e.Pattern != nil:
		err = e.byPattern(run, combined)
	default:
		err = e.byForm(run, stdout, combined)
	}
	if err == nil && (run.Seconds < 0 || run.IOPS < 0 || math.IsInf(run.IOPS, 0)) {
		err = errors.New("the measurement is no positive number")
	}
	if err != nil {
		run.Seconds, run.IOPS, run.Error = 0, 0, err.Error()
	}
}

func (e *Extractor) setSeconds(run *Run, seconds float64, requests float64) error {
	if e.Dimension != IOPS {
		run.Seconds = seconds
		return nil
	}
	if requests <= 0 || seconds <= 0 {
		return errors.New("the number of requests per second cannot be told from the output")
	}
	run.IOPS = requests / seconds
	run.Resolution *= run.IOPS / seconds
	return nil
}

func (e *Extractor) byPattern(run *Run, out []byte) error {
	m := e.Pattern.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("nothing in the output matches %q", e.Pattern)
	}
	dimension, group := e.Dimension, min(1, len(m)-1)
	for i, name := range e.Pattern.SubexpNames() {
		if (name == Seconds || name == IOPS) && m[i] != nil {
			dimension, group = name, i
			break
		}
	}
	v, step, err := parseNumber(string(m[group]))
	if err != nil {
		return err
	}
	run.Resolution = step
	if dimension == IOPS {
		run.IOPS = v
	} else {
		run.Seconds = v
	}
	return nil
}

// parseNumber returns a decimal number and the step of its last digit.
func parseNumber(s string) (v, step float64, err error) {
	v, err = strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, 0, fmt.Errorf("%q is no number", s)
	}
	if _, frac, ok := strings.Cut(s, "."); ok && !strings.ContainsAny(s, "eE") {
		step = math.Pow10(-len(frac))
	}
	return v, step, nil
}

func (e *Extractor) byForm(run *Run, stdout, combined []byte) error {
	if m := completedLine.FindSubmatch(combined); m != nil {
		v, step, err := parseNumber(string(m[1]))
		if err != nil {
			return err
		}
		run.Resolution = step
		requests := 0.0
		if c := sendingLine.FindSubmatch(combined); c != nil {
			requests, _ = strconv.ParseFloat(string(c[1]), 64)
		}
		return e.setSeconds(run, v, requests)
	}
	for _, obj := range jsonObjects(stdout) {
		if found, err := e.byJSON(run, obj); found || err != nil {
			return err
		}
	}
	return errors.New("no measurement in the output: neither \"Run completed in N seconds.\" nor the JSON of byre bench or fio")
}

// jsonObjects returns the objects that start at the beginning of a line.
func jsonObjects(out []byte) (objs []json.RawMessage) {
	for pos := 0; pos < len(out); {
		if out[pos] == '{' {
			var raw json.RawMessage
			dec := json.NewDecoder(bytes.NewReader(out[pos:]))
			if dec.Decode(&raw) == nil {
				objs = append(objs, raw)
				pos += int(dec.InputOffset())
			}
		}
		next := bytes.IndexByte(out[pos:], '\n')
		if next < 0 {
			break
		}
		pos += next + 1
	}
	return objs
}

// byJSON reads the output of byre bench or fio. It reports false for anything else.
func (e *Extractor) byJSON(run *Run, raw json.RawMessage) (bool, error) {
	var b struct {
		FioVersion    string             `json:"fio version"`
		Jobs          []fioJob           `json:"jobs"`
		Seconds       *float64           `json:"seconds"`
		IOPS          float64            `json:"iops"`
		Requests      float64            `json:"requests"`
		DurationLimit float64            `json:"duration-limit"`
		Latency       map[string]float64 `json:"latency-us"`
		Counters      map[string]float64 `json:"counters"`
	}
	if json.Unmarshal(raw, &b) != nil {
		return false, nil
	}
	if b.FioVersion != "" && len(b.Jobs) > 0 {
		return true, e.byFio(run, b.Jobs)
	}
	if b.Seconds == nil {
		return false, nil
	}
	run.Latency, run.Counters = b.Latency, b.Counters
	if b.DurationLimit > 0 && e.Dimension != Seconds {
		run.IOPS = b.IOPS
		return true, nil
	}
	return true, e.setSeconds(run, *b.Seconds, b.Requests)
}

type fioJob struct {
	Error              int
	Read, Write, Trim  fioSide
	Jobname            string
	UserCPU, SystemCPU float64
}

type fioSide struct {
	IOPS    float64 `json:"iops"`
	Runtime float64 `json:"runtime"` // milliseconds
	Total   float64 `json:"total_ios"`
	Clat    struct {
		Min, Max, Mean float64
		N              float64
		Percentile     map[string]float64
	} `json:"clat_ns"`
}

func (e *Extractor) byFio(run *Run, jobs []fioJob) error {
	var iops, runtime float64
	for _, j := range jobs {
		if j.Error != 0 {
			return fmt.Errorf("fio job %q failed with error %d", j.Jobname, j.Error)
		}
		for _, s := range []*fioSide{&j.Read, &j.Write, &j.Trim} {
			iops += s.IOPS
			runtime = max(runtime, s.Runtime/1000)
			if len(jobs) == 1 && s.Clat.N > 0 && run.Latency == nil {
				run.Latency = map[string]float64{"min": s.Clat.Min / 1e3, "mean": s.Clat.Mean / 1e3, "max": s.Clat.Max / 1e3}
				for name, key := range map[string]string{"p50": "50.000000", "p90": "90.000000", "p95": "95.000000", "p99": "99.000000", "p99.9": "99.900000", "p99.99": "99.990000"} {
					if v, ok := s.Clat.Percentile[key]; ok {
						run.Latency[name] = v / 1e3
					}
				}
			}
		}
	}
	if e.Dimension == Seconds {
		run.Seconds = runtime
		return nil
	}
	run.IOPS = iops
	return nil
}
