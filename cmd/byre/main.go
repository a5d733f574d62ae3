// Command byre is a qcow2 toolbox with the verbs people already type. It chooses its personality (byre, qemu-img,
// qemu-io) from the name it is called by.
package main

import (
	"os"

	"byre/cli"
)

func main() {
	env, stop := cli.OSEnv()
	code := cli.Main(env)
	stop()
	os.Exit(code)
}
