//go:build !linux

package compare

import "errors"

var errNoDrop = errors.New("dropping caches is not possible on this system")

func dropCaches() error     { return errNoDrop }
func dropFile(string) error { return errNoDrop }
