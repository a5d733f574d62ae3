package cli

import "fmt"

// Version of byre; the build sets it.
var Version = "0.1.0-dev"

// compatVersion is the release of the real tools whose output byre's equals; tools parse it.
const compatVersion = "9.2.0"

func printVersion(c *call) int {
	fmt.Fprintf(c.Stdout, "%s version %s (byre %s)\n", versionName(c.prog), compatVersion, Version)
	return 0
}

// versionName: tools look for the classic name in the first line, so `byre` answers as qemu-img does.
func versionName(prog string) string {
	if prog == "byre" {
		return "qemu-img"
	}
	return prog
}
