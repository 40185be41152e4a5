// Package timespan reads lengths of time as people write them: Go's durations with weeks and days before
// them, such as 90s, 1h30m, 2d, 1w or 1d12h. A day is 24 hours, whatever the clocks of a place do.
package timespan

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	day     = 24 * time.Hour
	week    = 7 * day
	longest = 36500 * day
)

// Parse reads a length of time. Its parts come from the longest unit to the shortest; none is longer than
// 36,500 days.
func Parse(text string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(text, "-")
	var sum time.Duration
	for _, u := range []struct {
		letter string
		is     time.Duration
	}{{"w", week}, {"d", day}} {
		number, after, found := strings.Cut(rest, u.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !isPlain(number) {
			return 0, refuse(text)
		}
		if n > float64(longest/u.is) {
			return 0, tooLong(text)
		}
		if sum, rest = sum+time.Duration(n*float64(u.is)), after; sum > longest {
			return 0, tooLong(text)
		}
		if rest == "" {
			return signed(sum, negative), nil
		}
	}
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, refuse(text)
	}
	short, err := time.ParseDuration(rest)
	if err != nil {
		return 0, refuse(text)
	}
	if short > longest || sum+short > longest {
		return 0, tooLong(text)
	}
	return signed(sum+short, negative), nil
}

func signed(d time.Duration, negative bool) time.Duration {
	if negative {
		return -d
	}
	return d
}

// isPlain reports whether a number is written in digits: no exponent, no sign, no name.
func isPlain(number string) bool {
	return strings.Trim(number, "0123456789.") == ""
}

func refuse(text string) error {
	return fmt.Errorf("parse duration %q: want a number with a unit, such as 90s, 10m, 8h, 2d or 1w, or several: 1d12h", text)
}

func tooLong(text string) error {
	return fmt.Errorf("parse duration %q: longer than %d days", text, longest/day)
}

// Value is a length of time as a flag of a command line.
type Value struct{ d *time.Duration }

// NewValue makes the flag that sets d; what d is before is its default.
func NewValue(d *time.Duration) Value { return Value{d} }

// Set reads the flag's text.
func (v Value) Set(text string) error {
	d, err := Parse(text)
	if err != nil {
		return err
	}
	*v.d = d
	return nil
}

// String is the flag's value in Go's units; 0, which helps do not show as a default, for none.
func (v Value) String() string {
	if v.d == nil || *v.d == 0 {
		return "0"
	}
	return v.d.String()
}

// Type names the flag's kind in helps.
func (v Value) Type() string { return "duration" }
