package cli

import "fmt"

func printHelp(c *call) int {
	fmt.Fprintf(c.Stdout, "usage: %s [standard options] command [command options]\n\nCommands:\n", c.prog)
	for _, v := range verbs {
		fmt.Fprintf(c.Stdout, "  %-12s %s\n", v.name, v.summary)
	}
	return 0
}
