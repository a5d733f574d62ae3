//go:build unix && !linux

package iobuf

func adviseHuge([]byte) {}
