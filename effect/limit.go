package effect

import (
	"fmt"
	"math"
	"time"
)

// Limit bounds what is begun within a time: calls, or units that a CEL expression reads from a call.
type Limit struct {
	Name   string        // unique in the policy; limits of one name share one account
	Per    LimitPer      // whose calls count together
	Max    int64         // in millionths of a unit; of calls, a million each
	Within time.Duration // a sliding time, ending now; zero: for ever
	Units  *Amount       // nil: calls
}

// LimitPer says whose calls count together.
type LimitPer string

const (
	PerRun       LimitPer = "run"
	PerPrincipal LimitPer = "principal"
	PerTenant    LimitPer = "tenant"
)

// Unit is one unit of a limit.
const Unit = 1_000_000

// Spend is what one call would take from one limit.
type Spend struct {
	Limit   string
	Subject string // whose account: the run's, the principal's or the tenant's
	Units   int64  // in millionths
	Max     int64
	Within  time.Duration
}

// Spends returns what a call would take from each of the contract's limits. No call escapes a limit by naming
// no run or nobody: those without a run take from one account of their principal, and those of nobody from one
// account. The error is an *InvalidError: the units cannot be read from the call. In shadow such a limit is left
// out.
func (c *Contract) Spends(call *Call) ([]Spend, error) {
	if len(c.Limits) == 0 {
		return nil, nil
	}
	spends := make([]Spend, 0, len(c.Limits))
	for i := range c.Limits {
		l := &c.Limits[i]
		units, err := l.units(call)
		if err != nil && c.Shadow {
			continue
		}
		if err != nil {
			return nil, &InvalidError{Pointer: "/arguments", Reason: fmt.Sprintf(
				"cannot be counted for limit %s of %s (%s)", l.Name, c.Source, whyNoValue(err))}
		}
		spends = append(spends, Spend{Limit: l.Name, Subject: l.subject(call), Units: units, Max: l.Max, Within: l.Within})
	}
	return spends, nil
}

func (l *Limit) units(call *Call) (int64, error) {
	if l.Units == nil {
		return Unit, nil
	}
	return l.Units.Of(call)
}

// subject is whose account the call is counted in.
func (l *Limit) subject(call *Call) string {
	switch {
	case l.Per == PerRun && call.Run != "":
		return "run:" + call.Run
	case l.Per == PerRun:
		return "no run:" + call.Principal
	case l.Per == PerPrincipal:
		return "principal:" + call.Principal
	}
	return "tenant:"
}

// exceeded returns why a call may not begin; empty when each limit has room for it. spent is what others have
// taken of each spend, in the same order.
func exceeded(spends []Spend, spent []int64) string {
	for i, s := range spends {
		if s.Units > s.Max || spent[i] > s.Max-s.Units {
			return fmt.Sprintf("limit %s allows %s%s: %s is taken, and this call would take %s more",
				s.Limit, units(s.Max), within(s.Within), units(spent[i]), units(s.Units))
		}
	}
	return ""
}

func within(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return " within " + d.String()
}

func units(millionths int64) string {
	if millionths%Unit == 0 {
		return fmt.Sprint(millionths / Unit)
	}
	return fmt.Sprintf("%g", float64(millionths)/Unit)
}

// wholeUnits is n units in millionths.
func wholeUnits(n int64) (int64, error) {
	switch {
	case n < 0:
		return 0, fmt.Errorf("%d is no amount", n)
	case n > math.MaxInt64/4/Unit:
		return 0, fmt.Errorf("%d is too much to count", n)
	}
	return n * Unit, nil
}

// millionths rounds up, so that a limit is never passed by what was rounded away.
func millionths(v float64) (int64, error) {
	m := math.Ceil(v*Unit - 1e-6)
	switch {
	case math.IsNaN(v), v < 0:
		return 0, fmt.Errorf("%g is no amount", v)
	case m > math.MaxInt64/4:
		return 0, fmt.Errorf("%g is too much to count", v)
	}
	return int64(m), nil
}
