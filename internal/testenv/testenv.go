// Package testenv finds the real tools that tests compare with. A missing one skips a test on a developer's machine and
// fails it in CI, so that a green run there has compared.
package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// CI tells whether the run must not skip: the environment has CI set.
func CI() bool { return os.Getenv("CI") != "" }

// Tool returns the path of an installed program.
func Tool(t testing.TB, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	if err == nil {
		return p
	}
	if CI() {
		t.Fatalf("%s is not installed; CI compares with it", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// Root skips (fails in CI) unless the test may make loop devices and mounts.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if CI() {
		t.Fatal("not root; CI tests block devices and mounts")
	}
	t.Skip("needs root for loop devices and mounts")
}

// Run runs a program and returns its standard output; it fails the test, with what the program said, if it fails.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	return RunIn(t, "", name, args...)
}

// RunIn is Run in a folder, "" for the current one.
func RunIn(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(Tool(t, name), args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		msg := ""
		if ee, ok := err.(*exec.ExitError); ok {
			msg = string(ee.Stderr)
		}
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, msg)
	}
	return string(out)
}
