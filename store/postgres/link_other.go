//go:build !unix

package postgres

import "time"

// awaitInput leaves the waiting to the runtime.
func awaitInput(uintptr, time.Duration) {}
