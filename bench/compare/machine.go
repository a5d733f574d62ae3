package compare

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine describes where results come from, so that those of different machines are not taken for comparable.
type Machine struct {
	Host   string `json:"host,omitempty"`
	OS     string `json:"os"`
	Kernel string `json:"kernel,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory,omitempty"` // bytes
}

// ThisMachine describes the machine it runs on, as far as the system tells.
func ThisMachine() *Machine {
	m := &Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
	m.Host, _ = os.Hostname()
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	m.CPU = procField("/proc/cpuinfo", "model name")
	var kib int64
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%d kB", &kib); err == nil {
		m.Memory = kib << 10
	}
	return m
}

// procField returns the value of the first line "name: value" of a file.
func procField(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Same reports whether speeds of the two machines can be compared. The host's name does not matter.
func (m *Machine) Same(o *Machine) bool {
	if m == nil || o == nil {
		return false
	}
	a, b := *m, *o
	a.Host, b.Host = "", ""
	return a == b
}

func (m *Machine) String() string {
	if m == nil {
		return "unknown machine"
	}
	parts := []string{m.OS}
	if m.Kernel != "" {
		parts = append(parts, "kernel "+m.Kernel)
	}
	if m.CPU != "" {
		parts = append(parts, fmt.Sprintf("%d × %s", m.CPUs, m.CPU))
	} else {
		parts = append(parts, fmt.Sprintf("%d CPUs", m.CPUs))
	}
	if m.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%.1f GiB", float64(m.Memory)/(1<<30)))
	}
	return strings.Join(parts, ", ")
}
