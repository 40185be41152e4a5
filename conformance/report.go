package conformance

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Report is how a run ended.
type Report struct {
	Suite   string   `json:"suite"` // version of the cases
	Results []Result `json:"results"`
	Stale   []string `json:"stale,omitempty"` // entries of the expected-failures file that name no check
}

// Add appends the results of another run.
func (r *Report) Add(other *Report) { r.Results = append(r.Results, other.Results...) }

// Count returns how many results have the status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Status == s {
			n++
		}
	}
	return n
}

// OK reports a run in which something passed and nothing was unexpected: no failure that is not in the
// expected-failures file, no pass that the file says fails, no entry of the file that names nothing.
func (r *Report) OK() bool {
	ran := len(r.Results) - r.Count(Skipped)
	return ran > 0 && r.Count(Failed) == 0 && r.Count(UnexpectedPass) == 0 && len(r.Stale) == 0
}

// requirement is a requirement's line in a report.
type requirement struct {
	Name    string `json:"requirement"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
}

// requirements sums up the results by requirement, in order of name.
func (r *Report) requirements() []requirement {
	sums := map[string]*requirement{}
	for i := range r.Results {
		res := &r.Results[i]
		sum := sums[res.Requirement]
		if sum == nil {
			sum = &requirement{Name: res.Requirement}
			sums[res.Requirement] = sum
		}
		switch res.Status {
		case Passed, UnexpectedPass:
			sum.Passed++
		case Skipped:
			sum.Skipped++
		default:
			sum.Failed++
		}
	}
	list := make([]requirement, 0, len(sums))
	for _, sum := range sums {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b requirement) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// compliance is the share of passed checks among those that ran, in percent, rounded down.
func (r *Report) compliance() int {
	ran := len(r.Results) - r.Count(Skipped)
	if ran == 0 {
		return 0
	}
	return (r.Count(Passed) + r.Count(UnexpectedPass)) * 100 / ran
}

// WriteText writes the report for people: a line for each requirement, then what was not as it should be.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	paint := func(code, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "REQUIREMENT\tPASSED\tFAILED\tSKIPPED")
	for _, q := range r.requirements() {
		if q.Passed+q.Failed == 0 {
			continue // counted below
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\n", q.Name, q.Passed, q.Failed, q.Skipped)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Status == Passed || res.Status == Skipped {
			continue
		}
		mark := map[Status]string{Failed: paint("31", "FAILED"), ExpectedFailed: paint("33", "expected failure"),
			UnexpectedPass: paint("31", "PASSED, BUT THE EXPECTED-FAILURES FILE NAMES IT")}[res.Status]
		fmt.Fprintf(w, "\n%s  %s  (%s) [%s]\n", mark, res.ID, res.Requirement, res.Subject)
		for _, d := range res.Details {
			fmt.Fprintln(w, "    "+printable(d))
		}
	}
	for _, id := range r.Stale {
		fmt.Fprintf(w, "\n%s  the expected-failures file names it, and no check has that id\n", paint("31", id))
	}
	r.writeSkipped(w)
	summary := fmt.Sprintf("%d passed, %d failed, %d expected failures, %d skipped: compliance %d%% (suite %s)",
		r.Count(Passed), r.Count(Failed)+r.Count(UnexpectedPass), r.Count(ExpectedFailed), r.Count(Skipped), r.compliance(), r.Suite)
	code := "32"
	if !r.OK() {
		code = "31"
	}
	_, err := fmt.Fprintf(w, "\n%s\n", paint(code, summary))
	return err
}

// writeSkipped says what was not tried and why: a compliance of what was tried is no more than that.
func (r *Report) writeSkipped(w io.Writer) {
	counts := map[string]int{}
	for i := range r.Results {
		if r.Results[i].Status == Skipped {
			counts[strings.Join(r.Results[i].Details, "; ")]++
		}
	}
	if len(counts) > 0 {
		fmt.Fprintln(w, "\nSkipped:")
	}
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for _, reason := range reasons {
		fmt.Fprintf(w, "%6d  %s\n", counts[reason], printable(reason))
	}
}

// printable keeps control characters of what is tried off the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '·'
		}
		return r
	}, s)
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	type timedResult struct {
		Result
		DurationMs int64 `json:"durationMs"`
	}
	out := struct {
		Suite        string         `json:"suite"`
		OK           bool           `json:"ok"`
		Compliance   int            `json:"compliance"`
		Counts       map[Status]int `json:"counts"`
		Requirements []requirement  `json:"requirements"`
		Results      []timedResult  `json:"results"`
		Stale        []string       `json:"stale,omitempty"`
	}{Suite: r.Suite, OK: r.OK(), Compliance: r.compliance(), Counts: map[Status]int{}, Requirements: r.requirements(), Stale: r.Stale}
	for i := range r.Results {
		res := r.Results[i]
		out.Counts[res.Status]++
		out.Results = append(out.Results, timedResult{res, res.Elapsed.Milliseconds()})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

type junitSuites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Suites   []junitSuite
}

type junitSuite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Cases    []junitCase
}

type junitCase struct {
	XMLName xml.Name      `xml:"testcase"`
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML, a test suite for each requirement.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "interceptor conformance " + r.Suite, Tests: len(r.Results),
		Failures: r.Count(Failed) + r.Count(UnexpectedPass), Skipped: r.Count(Skipped) + r.Count(ExpectedFailed)}
	for _, q := range r.requirements() {
		all.Suites = append(all.Suites, r.junitSuite(q.Name))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return fmt.Errorf("write junit report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) junitSuite(name string) junitSuite {
	s := junitSuite{Name: name}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Requirement != name {
			continue
		}
		c := junitCase{Name: res.ID, Class: res.Subject, Time: fmt.Sprintf("%.3f", res.Elapsed.Round(time.Millisecond).Seconds())}
		text := &junitMessage{Message: string(res.Status), Text: strings.Join(res.Details, "\n")}
		switch res.Status {
		case Failed, UnexpectedPass:
			c.Failure = text
			s.Failures++
		case Skipped, ExpectedFailed:
			c.Skipped = text
			s.Skipped++
		}
		s.Tests++
		s.Cases = append(s.Cases, c)
	}
	return s
}
