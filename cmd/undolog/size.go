package main

import (
	"fmt"

	"github.com/dustin/go-humanize"
)

// parseSize reads a number of bytes such as 500kB, 64MB or 1GiB.
func parseSize(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > 1<<40 {
		return 0, fmt.Errorf("%q is not a size such as 500kB, 64MB or 1GiB", s)
	}
	return int64(n), nil
}
