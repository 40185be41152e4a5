// Package hostcheck checks a live interceptor server from outside, whatever it hosts: how it declares the
// extension, lists and filters, refuses what is malformed, unknown or not hooked, and what its results look
// like, over stdio or HTTP, at the protocol revisions that it speaks.
//
// It finds out what is hosted by listing. Unless told not to, it invokes what it finds, with a harmless
// tool call: an interceptor that keeps records will have a few of them more.
package hostcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
)

// checkTimeout bounds one check.
const checkTimeout = 20 * time.Second

// Target is the server to check: a URL or a command.
type Target struct {
	URL     string
	Header  http.Header // of every request to URL
	Command []string    // speaks MCP on standard input and output
	Errs    io.Writer   // its standard error; nil discards it
	// NoInvoke leaves out the checks that invoke what is listed.
	NoInvoke bool
}

func (t *Target) name() string {
	if t.URL != "" {
		return t.URL
	}
	return strings.Join(t.Command, " ")
}

// Run checks the target. A server that speaks neither revision fails.
func Run(ctx context.Context, t *Target, opts *conformance.Options) (*conformance.Report, error) {
	report := &conformance.Report{Suite: conformance.SuiteVersion}
	var reasons []string
	for _, revision := range []string{wire.Stateless, wire.Legacy} {
		p, why, err := t.probe(ctx, revision)
		if err != nil {
			return nil, err
		}
		if p == nil {
			reasons = append(reasons, revision+": "+why)
			report.Results = append(report.Results, conformance.Result{ID: "host/speaks-" + revision, Requirement: "MCP-" + revision,
				Subject: t.name(), Status: conformance.Skipped, Details: []string{why}})
			continue
		}
		report.Add(p.run(ctx, opts))
		if err := p.conn.Close(); err != nil {
			return nil, fmt.Errorf("close connection: %w", err)
		}
	}
	if len(reasons) == 2 {
		report.Results = append(report.Results, conformance.Result{ID: "host/speaks", Requirement: "MCP", Subject: t.name(),
			Status: conformance.Failed, Details: reasons})
		return report, nil
	}
	report.Add(t.runWire(ctx, opts, len(reasons) == 0 || strings.HasPrefix(reasons[0], wire.Legacy)))
	return report, nil
}

// probe is a target at one revision, with what it said of itself.
type probe struct {
	target      *Target
	conn        wire.Conn
	hello       json.RawMessage // result of initialize or server/discover
	descriptors []descriptor
}

// probe connects at a revision; why says that it is not spoken.
func (t *Target) probe(ctx context.Context, revision string) (p *probe, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, a, err := t.connect(ctx, revision)
	if err != nil {
		if conn == nil {
			return nil, "", err
		}
		return nil, err.Error(), conn.Close()
	}
	if revision == wire.Stateless {
		a, err = conn.Call(ctx, "server/discover", nil)
		if err != nil || a.Result == nil {
			why := "server/discover is not answered"
			if err == nil && a.Error != nil {
				why = fmt.Sprintf("server/discover: error %d: %s", a.Error.Code, a.Error.Message)
			}
			return nil, why, conn.Close()
		}
	}
	return &probe{target: t, conn: conn, hello: a.Result}, "", nil
}

func (t *Target) connect(ctx context.Context, revision string) (wire.Conn, *conformance.Answer, error) {
	if t.URL != "" {
		h := wire.NewHTTP(t.URL, t.Header)
		a, err := h.Start(ctx, revision)
		return h, a, err
	}
	l, err := wire.Command(t.Command, &wire.CommandOptions{Errs: t.Errs})
	if err != nil {
		return nil, nil, err
	}
	a, err := l.Start(ctx, revision)
	return l, a, err
}

func (p *probe) subject() string { return p.target.name() + " " + p.conn.Revision() }

func (p *probe) run(ctx context.Context, opts *conformance.Options) *conformance.Report {
	r := &conformance.Report{Suite: conformance.SuiteVersion}
	var chosen []check
	for _, c := range checks {
		if (c.revision == "" || c.revision == p.conn.Revision()) && (opts == nil || opts.Only == "" ||
			strings.Contains(c.id, opts.Only) || strings.Contains(c.requirement, opts.Only)) {
			chosen = append(chosen, c)
		}
	}
	p.discover(ctx)
	for i, c := range chosen {
		res := p.try(ctx, c)
		r.Results = append(r.Results, res)
		if opts != nil && opts.Progress != nil {
			opts.Progress(res, i+1, len(chosen))
		}
	}
	return r
}

// discover reads what is listed, as far as it can be read: the checks of the list itself say what is wrong.
func (p *probe) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if a, err := p.conn.Call(ctx, "interceptors/list", nil); err == nil && a.Result != nil {
		p.descriptors, _ = readList(a.Result)
	}
}

func (p *probe) try(ctx context.Context, c check) conformance.Result {
	res := conformance.Result{ID: c.id, Requirement: c.requirement, Description: c.description, Subject: p.subject(), Status: conformance.Passed}
	if c.invokes && p.target.NoInvoke {
		res.Status, res.Details = conformance.Skipped, []string{"invocations are left out"}
		return res
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	started := time.Now()
	f := new(finding)
	c.run(ctx, p, f)
	res.Elapsed = time.Since(started)
	switch {
	case len(f.faults) > 0:
		res.Status, res.Details = conformance.Failed, f.faults
	case f.nothing != "":
		res.Status, res.Details = conformance.Skipped, []string{f.nothing}
	}
	return res
}

// finding collects what a check found.
type finding struct {
	faults  []string
	nothing string // why there was nothing to check
}

func (f *finding) addf(format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// IDs are those of the checks; the wire cases that are tried besides have those of the suite.
func IDs() []string {
	ids := make([]string, len(checks))
	for i := range checks {
		ids[i] = checks[i].id
	}
	return ids
}

// runWire tries the wire cases of the suite that need no interceptor of theirs.
func (t *Target) runWire(ctx context.Context, opts *conformance.Options, stateless bool) *conformance.Report {
	suite, err := conformance.Suite()
	if err != nil {
		panic(err) // embedded
	}
	var chosen []*conformance.Fixture
	for _, f := range suite {
		if t.canBeAsked(f, stateless) {
			chosen = append(chosen, f)
		}
	}
	return conformance.Run(ctx, chosen, &wireAdapter{t}, opts)
}

// canBeAsked reports a wire case that needs no interceptor of its own, nor a transport or a revision that the
// host has not.
func (t *Target) canBeAsked(f *conformance.Fixture, stateless bool) bool {
	switch {
	case f.Kind != "wire", len(f.Interceptors) > 0:
		return false
	case t.URL == "" && slices.Contains(f.Needs(), conformance.FeatureHTTP):
		return false
	}
	return stateless || f.Steps[0].Request.Revision == wire.Legacy
}

// wireAdapter sends raw requests to the target; it registers nothing.
type wireAdapter struct{ target *Target }

func (a *wireAdapter) Name() string { return a.target.name() }

func (a *wireAdapter) Has(f conformance.Feature) bool {
	return f == conformance.FeatureRequest || f == conformance.FeatureHTTP && a.target.URL != ""
}

func (a *wireAdapter) CreateSession(context.Context, *conformance.Fixture) (conformance.Session, error) {
	if a.target.URL != "" {
		web := wire.NewHTTP(a.target.URL, a.target.Header)
		return &wireSession{web, web}, nil
	}
	lines, err := wire.Command(a.target.Command, &wire.CommandOptions{Errs: a.target.Errs})
	if err != nil {
		return nil, err
	}
	return &wireSession{lines, lines}, nil
}

// wireSession is a connection on which nothing was said yet.
type wireSession struct {
	conformance.Requester
	io.Closer
}

func (s *wireSession) List(context.Context, *string) (*conformance.Answer, error) {
	return nil, conformance.ErrUnsupported
}

func (s *wireSession) Invoke(context.Context, json.RawMessage) (*conformance.Answer, error) {
	return nil, conformance.ErrUnsupported
}

func (s *wireSession) Apply(context.Context, *conformance.Step) (*conformance.Decision, error) {
	return nil, conformance.ErrUnsupported
}
