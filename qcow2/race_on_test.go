//go:build race

package qcow2

// raceEnabled: pools drop objects at random under the race detector.
const raceEnabled = true
