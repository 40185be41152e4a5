package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Status says how a check ended.
type Status string

const (
	Passed         Status = "passed"
	Failed         Status = "failed"
	Skipped        Status = "skipped"         // the subject cannot be asked this
	ExpectedFailed Status = "expected"        // failed, as the expected-failures file says
	UnexpectedPass Status = "unexpected-pass" // passed, though the file says that it fails
)

// Result is how one check of one subject ended.
type Result struct {
	ID          string        `json:"id"`
	Requirement string        `json:"requirement"`
	Description string        `json:"description,omitempty"`
	Subject     string        `json:"subject,omitempty"`
	Status      Status        `json:"status"`
	Details     []string      `json:"details,omitempty"` // what was not as expected, or why it was skipped
	Elapsed     time.Duration `json:"-"`
}

// Options configure Run.
type Options struct {
	// Parallel is how many fixtures are tried at a time. Defaults to 1.
	Parallel int
	// Only tries the fixtures whose id or requirement contains this text. Defaults to all.
	Only string
	// Patience is what the time bounds of steps are multiplied by: more than 1 for machines that have other
	// things to do. Defaults to 1.
	Patience float64
	// Progress is called after each fixture, one call at a time. Defaults to nobody.
	Progress func(r Result, done, total int)
}

// Run tries every fixture with the adapter. Results are in the order of the fixtures.
func Run(ctx context.Context, fixtures []*Fixture, a Adapter, opts *Options) *Report {
	var o Options
	if opts != nil {
		o = *opts
	}
	fixtures = o.chosen(fixtures)
	r := &Report{Suite: SuiteVersion, Results: make([]Result, len(fixtures))}
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, done := make(chan int), 0
	for range max(o.Parallel, 1) {
		wg.Go(func() {
			for i := range next {
				result := o.try(ctx, a, fixtures[i])
				mu.Lock()
				r.Results[i] = result
				done++
				if o.Progress != nil {
					o.Progress(result, done, len(fixtures))
				}
				mu.Unlock()
			}
		})
	}
	for i := range fixtures {
		next <- i
	}
	close(next)
	wg.Wait()
	return r
}

func (o *Options) chosen(fixtures []*Fixture) []*Fixture {
	if o.Only == "" {
		return fixtures
	}
	var chosen []*Fixture
	for _, f := range fixtures {
		if strings.Contains(f.ID, o.Only) || strings.Contains(f.Requirement, o.Only) {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

func (o *Options) try(ctx context.Context, a Adapter, f *Fixture) Result {
	r := Result{ID: f.ID, Requirement: f.Requirement, Description: f.Description, Subject: a.Name(), Status: Passed}
	started := time.Now()
	faults, err := replay(ctx, a, f, max(o.Patience, 1))
	r.Elapsed = time.Since(started)
	switch {
	case errors.Is(err, ErrUnsupported):
		r.Status, r.Details = Skipped, []string{err.Error()}
	case err != nil:
		r.Status, r.Details = Failed, []string{err.Error()}
	case len(faults) > 0:
		r.Status, r.Details = Failed, faults
	}
	return r
}
