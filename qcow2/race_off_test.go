//go:build !race

package qcow2

const raceEnabled = false
