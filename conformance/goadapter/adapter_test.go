package goadapter_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/goadapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter_Suite(t *testing.T) {
	fixtures, err := conformance.Suite()
	if err != nil {
		t.Fatalf("Suite: %v", err)
	}
	for _, transport := range goadapter.Transports {
		for _, posture := range postures(transport) {
			t.Run(string(transport)+" "+string(posture), func(t *testing.T) {
				t.Parallel()
				passes(t, fixtures, &goadapter.Adapter{Transport: transport, Posture: posture})
			})
		}
	}
}

// postures are both where a transport is unlike the others, and one for the rest.
func postures(t goadapter.Transport) []conformance.Posture {
	if t == goadapter.Direct || t == goadapter.HTTP {
		return []conformance.Posture{conformance.PostureClient, conformance.PostureServer}
	}
	return []conformance.Posture{conformance.PostureServer}
}

// Fixtures of others, in the directory that UNDOLOG_FIXTURES names.
func TestAdapter_FixturesOfOthers(t *testing.T) {
	dir := os.Getenv("UNDOLOG_FIXTURES")
	if dir == "" {
		t.Skip("UNDOLOG_FIXTURES names no directory of fixtures")
	}
	fixtures, err := conformance.Load(os.DirFS(dir))
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("Load: %d fixtures, %v", len(fixtures), err)
	}
	for _, transport := range goadapter.Transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			if r := passes(t, fixtures, &goadapter.Adapter{Transport: transport}); r.Count(conformance.Passed) != len(fixtures) {
				t.Errorf("%d of %d fixtures were tried", r.Count(conformance.Passed), len(fixtures))
			}
		})
	}
}

// passes fails the test for every fixture that fails.
func passes(t *testing.T, fixtures []*conformance.Fixture, a conformance.Adapter) *conformance.Report {
	t.Helper()
	r := conformance.Run(t.Context(), fixtures, a, &conformance.Options{Parallel: 4, Patience: 4})
	for _, res := range r.Results {
		if res.Status == conformance.Failed {
			t.Errorf("%s: %q", res.ID, res.Details)
		}
	}
	if r.Count(conformance.Passed) == 0 {
		t.Error("nothing was tried")
	}
	t.Logf("%d passed, %d skipped", r.Count(conformance.Passed), r.Count(conformance.Skipped))
	return r
}
