package drivertest

import "testing"

// Scale returns how often a test of many calls repeats itself: n times, and fewer under the race
// detector, where a database in Go runs some fifty times slower, or with -short.
func Scale(n int) int {
	if raceDetector || testing.Short() {
		return n / 50
	}
	return n
}
