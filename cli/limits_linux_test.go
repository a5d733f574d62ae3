package cli

import (
	"encoding/binary"
	"os"
	"os/exec"
	"testing"

	"byre/internal/testenv"
)

// childEnv makes the test binary be the program, for tests that need a process of its own.
const childEnv = "BYRE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		env, stop := OSEnv()
		code := Main(env)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// largestL1 makes an image whose L1 table is as long as it may be: 32 MiB, for 2 EiB.
func largestL1(t *testing.T, name string) {
	t.Helper()
	if code, _, errs := run(t, "byre", "create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", name, "2E"); code != 0 {
		t.Fatal(errs)
	}
}

func TestInfoNeedsLittleAddressSpaceForTheLargestL1(t *testing.T) {
	t.Chdir(t.TempDir())
	largestL1(t, "big.qcow2")
	for _, args := range [][]string{{"info", "big.qcow2"}, {"info", "--output=json", "big.qcow2"}, {"inspect", "--safety", "big.qcow2"},
		{"map", "--output=json", "big.qcow2"}} {
		cmd := exec.Command(testenv.Tool(t, "prlimit"), append([]string{"--as=1073741824", os.Args[0]}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%.500s", args, err, out)
		}
	}
}

// A header can claim sizes that the file does not have; nothing may be allocated for the claim.
func TestClaimsOfAHeaderCostNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	largestL1(t, "big.qcow2")
	whole, err := os.ReadFile("big.qcow2")
	if err != nil {
		t.Fatal(err)
	}
	small := whole[:2<<20]
	binary.BigEndian.PutUint32(small[60:], 65536)  // snapshots
	binary.BigEndian.PutUint64(small[64:], 0x2000) // not even aligned
	if err := os.WriteFile("small.qcow2", small, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"info", "small.qcow2"}, {"map", "small.qcow2"}, {"inspect", "--l2", "--refcounts", "small.qcow2"}} {
		cmd := exec.Command(testenv.Tool(t, "prlimit"), append([]string{"--as=1073741824", "--cpu=5", os.Args[0]}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		out, err := cmd.CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
			t.Errorf("%q: %v, want exit 1\n%.500s", args, err, out)
		}
	}
}
