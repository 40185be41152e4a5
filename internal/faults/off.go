//go:build !faults

package faults

// Point does nothing in a build without the tag faults.
func Point(string) {}
