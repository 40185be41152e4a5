package effect

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// policyFile is a policy file as JSON: the schema has been checked when it is read.
type policyFile struct {
	Version int          `json:"version"`
	Servers []serverRule `json:"servers"`
	Tools   []toolRule   `json:"tools"`
}

type serverRule struct {
	Server string `json:"server"`
	Trust  bool   `json:"trust"`
}

// toolRule is one entry under tools. Absent members are zero.
type toolRule struct {
	Server      string   `json:"server"`
	Tool        globs    `json:"tool"`
	Tier        Tier     `json:"tier"`
	Identity    []string `json:"identity"`
	Volatile    []string `json:"volatile"`
	Key         string   `json:"key"`
	Window      string   `json:"window"`
	Repeat      Repeat   `json:"repeat"`
	Lookalike   Repeat   `json:"lookalike"`
	Share       string   `json:"share"`
	Annotate    *bool    `json:"annotate"`
	OnToolError State    `json:"on_tool_error"`
	OnCancel    string   `json:"on_cancel"`
	Timeout     string   `json:"timeout"`
	Lease       string   `json:"lease"`
	Approve     string   `json:"approve"`

	line                    int
	windowed, timed, leased *time.Duration // Window, Timeout and Lease as read; nil: not given
}

// noKey is the value of a rule's key that says that no argument carries one.
const noKey = "none"

func (r *toolRule) matches(server, tool string) bool {
	if r.Server != "" && !matchGlob(r.Server, server) {
		return false
	}
	for _, glob := range r.Tool {
		if matchGlob(glob, tool) {
			return true
		}
	}
	return false
}

// contract resolves the rule. A compensable tool counts as irreversible for as long as no compensation
// can be named for it.
func (r *toolRule) contract(name string, ann *Annotations, trusted bool) *Contract {
	source := fmt.Sprintf("policy %s:%d", name, r.line)
	tier := r.Tier
	switch tier {
	case "":
		var from string
		tier, from = annotatedTier(ann, trusted)
		source += ", " + from
	case TierCompensable:
		tier = TierIrreversible
	}
	c := policyContract(tier)
	c.Source = source
	r.setIdentity(c)
	r.setRepeats(c)
	r.setDispatch(c)
	return c
}

func (r *toolRule) setIdentity(c *Contract) {
	c.Identity, c.Volatile = r.Identity, r.Volatile
	c.NoKeyArgument = r.Key == noKey
	if !c.NoKeyArgument {
		c.KeyArgument = r.Key
	}
	c.ShareTenant = r.Share != ""
}

func (r *toolRule) setRepeats(c *Contract) {
	if r.windowed != nil {
		c.Window = *r.windowed
	}
	if r.Repeat != "" {
		c.Repeat, c.RepeatError = r.Repeat, r.Repeat
	}
	if r.Lookalike != "" {
		c.Lookalike = r.Lookalike
	}
	if r.Annotate != nil {
		c.Annotate = *r.Annotate
	}
}

func (r *toolRule) setDispatch(c *Contract) {
	if r.OnToolError != "" {
		c.OnToolError = r.OnToolError
	}
	if r.OnCancel != "" {
		c.Detach = r.OnCancel == "detach"
	}
	if r.timed != nil {
		c.Timeout = *r.timed
	}
	if r.leased != nil {
		c.Lease = *r.leased
	}
	if r.Approve != "" {
		c.Approve = r.Approve == "always"
	}
}

// globs is one glob or a list of them.
type globs []string

func (g *globs) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*g = globs{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*g = list
	return nil
}

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
