package effect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	day     = 24 * time.Hour
	maxDays = 36500
)

// parseDuration reads a Go duration that may begin with days: 10m, 1h30m, 2d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	var days float64
	rest := text
	if number, after, ok := strings.Cut(text, "d"); ok {
		var err error
		if days, err = strconv.ParseFloat(number, 64); err != nil {
			return 0, fmt.Errorf("parse duration %q: %w", text, err)
		}
		rest = after
	}
	var d time.Duration
	if rest != "" || text == "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, fmt.Errorf("parse duration %q: %w", text, err)
		}
	}
	if days > maxDays || d > maxDays*day {
		return 0, fmt.Errorf("parse duration %q: longer than %d days", text, maxDays)
	}
	return d + time.Duration(days*float64(day)), nil
}
