package cli

// verbs is the table of commands, in alphabetical order. It is filled in init because the help text reads it.
var verbs []verb

func init() {
	verbs = []verb{}
}
