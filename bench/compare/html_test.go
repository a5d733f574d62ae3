package compare

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"byre/internal/testenv"
)

// rich builds results that use everything a report shows.
func rich() *Results {
	r := fixture([]string{"byre / 1", "byre / 16", "qemu-img / 1", "qemu-img / 16 <&>"}, []string{"4K / front", "4K / middle", "64K / front", "64K / middle"}, [][]string{
		{"0.5 0.51 0.49 0.5", "0.11 0.1 0.1 0.12", "0.9 0.88 0.95 0.91", "0.2 0.3 0.21 0.19"},
		{"0.6 0.61 0.59 0.6", "0.11 0.1 F 0.12", "0.9 0.88 0.95 0.91", "F F F"},
		{"1.5 1.51 1.49 1.5", "1.1 1.1 1.1 1.2", "1.5 1.52 1.49 1.5", "2 3 2.1 1.9"},
		{"1.5 1.51 1.49 1.5", "1.1 1.1 1.1 1.2", "1.9 1.88 1.95 1.91", "2 3 2.1 1.9"},
	})
	for i, sw := range []string{"1", "16", "1", "16"} {
		r.Envs[i].Switches = map[string]string{"bin": []string{"byre", "qemu-img"}[i/2], "depth": sw}
	}
	for i := range r.Cases {
		size, place, _ := strings.Cut(r.Cases[i].ID, " / ")
		r.Cases[i].Switches = map[string]string{"size": size, "place": place}
	}
	for _, row := range r.Cases {
		for j, env := range r.Envs {
			c := r.Cell(row, env)
			c.Command = "bench --depth <" + env.ID + "> " + strings.Repeat("long ", 60) + row.ID
			for k := range c.Runs {
				c.Runs[k].Usage = &Usage{Wall: 1, User: 0.2, System: 0.4, VoluntarySwitches: 1234567, DeviceFlushes: -1}
				if j < 2 {
					c.Runs[k].Counters = map[string]float64{"flushes": 3}
					c.Runs[k].Latency = map[string]float64{"p50": 40, "p90": 80, "p95": 120, "p99": 300, "p99.9": 2000 * float64(j+1), "p99.99": 9000, "max": 12345}
				}
			}
		}
	}
	r.Title, r.Template, r.Rounds = "Writes & <reads>", "{a|b} <x>", 4
	r.Machine = &Machine{OS: "linux/amd64", CPU: "A processor with quite a long name @ 3.00GHz", CPUs: 2, Memory: 8 << 30, Kernel: "6.1"}
	r.Started = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	r.Versions = map[string]string{"byre": "version 1"}
	return r
}

func report(t *testing.T, r *Results) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportsAreSelfContained(t *testing.T) {
	page := report(t, rich())
	for _, bad := range []string{"<script", "http:", "https:", "src=", "@import", "url(", "<x>", "NaN", "Inf", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"<h1>Writes &amp; &lt;reads&gt;</h1>", "2024-05-06", "A processor with", "By depth", "By size", "Latency", "p99.99", "Cost of a run", "flushes, reported", "Failures", "no luck", "FAILED", "(1 failed)", "no difference", "Template"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "<details>"); n < 17 {
		t.Errorf("%d details: not every command is there", n)
	}
}

func TestReportsOfOddResultsAreWhole(t *testing.T) {
	for name, r := range map[string]*Results{
		"a single cell":  fixture([]string{""}, []string{""}, [][]string{{"1"}}),
		"all failed":     fixture([]string{"a", "b"}, []string{"r"}, [][]string{{"F", "F"}}),
		"zeros":          fixture([]string{"a", "b"}, []string{"r"}, [][]string{{"0 0", "0 0"}}),
		"nothing ran":    fixture([]string{"a"}, []string{"r"}, [][]string{{""}}),
		"mixed":          fixture([]string{"a", "b"}, []string{"r"}, [][]string{{"5iops", "0.1 0.2"}}),
		"far apart":      fixture([]string{"a"}, []string{"r", "s"}, [][]string{{"0.001 0.002"}, {"1000 1100"}}),
		"many columns":   fixture(strings.Split(strings.Repeat("x;", 30)+"y", ";"), []string{"r"}, [][]string{strings.Split(strings.Repeat("1;", 30)+"2", ";")}),
		"several lines":  fixture([]string{"a\nb"}, []string{"r\ns"}, [][]string{{"1"}}),
		"tiny and large": fixture([]string{"a", "b"}, []string{"r"}, [][]string{{"0.0000001", "90000000000"}}),
	} {
		page := report(t, r)
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || strings.Contains(page, "%!") || !strings.HasSuffix(page, "</html>\n") {
			t.Errorf("%s: the page is not whole", name)
		}
		var b strings.Builder
		if err := r.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: the plot is not whole", name)
		}
		for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: the plot is no XML: %v", name, err)
			}
		}
	}
}

func TestNumericSwitchesAreFound(t *testing.T) {
	tests := []struct {
		labels string
		want   []float64
	}{
		{"4K|64K|1M", []float64{4096, 65536, 1 << 20}},
		{"1|8|64", []float64{1, 8, 64}},
		{"-d 1|-d 16", []float64{1, 16}},
		{"-s 2K|-s 2K -o 512", nil},
		{"native|io_uring", nil},
		{"4K", nil},
		{"64K|4K", nil}, // lines need an order
		{"-s 4K|-d 8", nil},
		{"0|1", nil}, // no place on a logarithmic axis
	}
	for _, tt := range tests {
		got, ok := numeric(strings.Split(tt.labels, "|"))
		if ok != (tt.want != nil) || ok && (len(got) != len(tt.want) || got[0] != tt.want[0] || got[len(got)-1] != tt.want[len(tt.want)-1]) {
			t.Errorf("%s: %v %v", tt.labels, got, ok)
		}
	}
	for v, want := range map[float64]float64{1: 1, 1.1: 2, 3: 5, 7: 10, 0.03: 0.05, 12000: 20000} {
		if got := niceStep(v); math.Abs(got-want) > want/1e6 {
			t.Errorf("niceStep(%g) = %g", v, got)
		}
	}
}

// probe is added to a copy of the page: it tells the frame around it what a reader would see.
const probe = `<script>
const r = document.documentElement, narrow = [];
for (const e of document.querySelectorAll('body *')) {
  const box = e.getBoundingClientRect();
  if (box.right > innerWidth + 1 && !e.closest('.scroll, pre')) narrow.push(e.tagName + '.' + e.className);
}
parent.postMessage(JSON.stringify({width: innerWidth, scroll: r.scrollWidth, outside: narrow.slice(0, 5),
  dark: matchMedia('(prefers-color-scheme: dark)').matches, background: getComputedStyle(document.body).backgroundColor,
  text: getComputedStyle(document.body).color, bars: document.querySelectorAll('.track i').length}), '*');
</script></body>`

// frame shows the page at a width below that of the smallest window, and puts what it tells into its own title.
const frame = `<!DOCTYPE html><meta name="color-scheme" content="light dark"><script>onmessage = e => { document.title = e.data }</script>
<iframe src="probed.html" style="border:0;height:1500px;width:%spx"></iframe>`

// TestReportsInABrowser opens a report in headless Chromium: at the width of a phone and of a desktop, light and dark.
// make report-check runs it; BYRE_SCREENSHOTS names a folder for pictures.
func TestReportsInABrowser(t *testing.T) {
	if os.Getenv("BYRE_BROWSER") == "" {
		t.Skip("BYRE_BROWSER is not set")
	}
	chromium := testenv.Tool(t, "chromium")
	dir := t.TempDir()
	page := report(t, rich())
	if f := os.Getenv("BYRE_REPORT"); f != "" {
		r, err := Load(f)
		if err != nil {
			t.Fatal(err)
		}
		page = report(t, r)
	}
	plain, probed := filepath.Join(dir, "report.html"), filepath.Join(dir, "probed.html")
	for path, text := range map[string]string{plain: page, probed: strings.Replace(page, "</body>", probe, 1)} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []string{"1280", "390"} {
			name := scheme + "-" + width
			args := []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--user-data-dir=" + filepath.Join(dir, "profile"),
				"--blink-settings=preferredColorScheme=" + map[string]string{"light": "1", "dark": "0"}[scheme], "--window-size=" + width + ",1600"}
			framed := filepath.Join(dir, "frame.html")
			if err := os.WriteFile(framed, fmt.Appendf(nil, frame, width), 0o666); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), chromium, append(args, "--virtual-time-budget=3000", "--dump-dom", "file://"+framed)...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			dom, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, stderr.String())
			}
			if strings.Contains(stderr.String(), ":CONSOLE") {
				t.Errorf("%s: the console has messages:\n%s", name, stderr.String())
			}
			title := regexp.MustCompile(`<title>(\{.*?\})</title>`).FindSubmatch(dom)
			if title == nil {
				t.Fatalf("%s: the page did not run", name)
			}
			t.Logf("%s: %s", name, title[1])
			seen := string(title[1])
			if !strings.Contains(seen, `"outside":[]`) {
				t.Errorf("%s: elements reach beyond the page: %s", name, seen)
			}
			if !strings.Contains(seen, `"width":`+width+",") {
				t.Errorf("%s: another width: %s", name, seen)
			}
			if strings.Contains(seen, `"bars":0`) || !strings.Contains(seen, `"dark":`+map[string]string{"light": "false", "dark": "true"}[scheme]) {
				t.Errorf("%s: %s", name, seen)
			}
			background[scheme] = regexp.MustCompile(`"background":"([^"]*)"`).FindString(seen)
			if shots := os.Getenv("BYRE_SCREENSHOTS"); shots != "" {
				cmd := exec.CommandContext(t.Context(), chromium, append(args, "--screenshot="+filepath.Join(shots, "report-"+name+".png"), "file://"+plain)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
			}
		}
	}
	if background["light"] == background["dark"] {
		t.Errorf("light and dark look alike: %v", background)
	}
}
