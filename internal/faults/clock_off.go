//go:build !faults

package faults

import "time"

// Now is time.Now in a build without the tag faults.
func Now() time.Time { return time.Now() }
