package cli

import (
	"cmp"
	"slices"
)

// verbs is the table of commands, in alphabetical order.
var verbs []verb

// register adds a verb to the table; the file of each verb does so in its init.
func register(v verb) {
	i, twice := slices.BinarySearchFunc(verbs, v.name, func(v verb, name string) int { return cmp.Compare(v.name, name) })
	if twice {
		panic("cli: verb " + v.name + " is registered twice")
	}
	verbs = slices.Insert(verbs, i, v)
}
