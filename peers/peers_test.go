//go:build peers

package peers_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// driver runs a plan against a target.
type driver struct {
	name   string
	modern bool // it offers 2026-07-28 and falls back by itself
	run    func(t *testing.T, plan string, to target) *transcript
}

var drivers = []driver{
	{"typescript v1", false, func(t *testing.T, plan string, to target) *transcript { return runNode(t, "v1.mjs", plan, to) }},
	{"typescript v2", true, func(t *testing.T, plan string, to target) *transcript { return runNode(t, "v2.mjs", plan, to) }},
	{"go", true, runGo},
}

// TestGateway_IsTransparent drives each server directly and through the gateway, the agent and the
// server on each transport that they have.
func TestGateway_IsTransparent(t *testing.T) {
	for _, s := range servers {
		for _, d := range drivers {
			t.Run(s.plan+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				compare(t, s, d, false)
				if s.http != nil {
					compare(t, s, d, true)
				}
			})
		}
	}
}

// TestDrivers_RepeatThemselves shows that two direct runs are equal, so that a difference through the
// gateway is the gateway's.
func TestDrivers_RepeatThemselves(t *testing.T) {
	for _, s := range servers {
		for _, d := range drivers {
			t.Run(s.plan+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				first, second := direct(t, s, d, false), direct(t, s, d, false)
				if diff := cmp.Diff(lines(first), lines(second)); diff != "" {
					t.Errorf("(-first +second)\n%s", diff)
				}
			})
		}
	}
}

func compare(t *testing.T, s server, d driver, upstreamHTTP bool) {
	t.Helper()
	want := direct(t, s, d, upstreamHTTP)
	for _, agentHTTP := range []bool{false, true} {
		name := "agent on " + transportName(agentHTTP) + ", server on " + transportName(upstreamHTTP)
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			to := gateway(t, agentHTTP, s.target(t, dir, upstreamHTTP))
			got := d.run(t, writePlan(t, s.plan, dir), to)
			if !got.takeExtension(t) {
				t.Error("the gateway does not say that it is there")
			}
			if era := eraOf(s, d); got.Era != era {
				t.Errorf("the client settled on the %s era, want %s", got.Era, era)
			}
			if diff := cmp.Diff(lines(want), lines(got.comparable(t, dir))); diff != "" {
				t.Errorf("(-direct +through the gateway)\n%s", diff)
			}
		})
	}
}

// direct runs a plan without the gateway.
func direct(t *testing.T, s server, d driver, overHTTP bool) string {
	t.Helper()
	dir := t.TempDir()
	plan := writePlan(t, s.plan, dir)
	got := d.run(t, plan, s.target(t, dir, overHTTP))
	checkComplete(t, readPlan(t, plan), got)
	return got.comparable(t, dir)
}

func (s server) target(t *testing.T, dir string, overHTTP bool) target {
	t.Helper()
	if overHTTP {
		return target{url: s.http(t, dir)}
	}
	return target{command: s.stdio(t, dir)}
}

// eraOf is the newest generation of the protocol that both sides speak.
func eraOf(s server, d driver) string {
	if s.modern && d.modern {
		return "modern"
	}
	return "legacy"
}

func transportName(http bool) string {
	if http {
		return "HTTP"
	}
	return "stdio"
}

func lines(text string) []string { return strings.Split(text, "\n") }

// runNode runs one of the drivers in TypeScript's SDKs.
func runNode(t *testing.T, script, plan string, to target) *transcript {
	t.Helper()
	args := []string{script, "--plan", plan}
	if to.url != "" {
		args = append(args, "--url", to.url)
	} else {
		args = append(append(args, "--"), to.command...)
	}
	path, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = path
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("run %s: %v\n%s", script, err, errs.String())
	}
	tr := &transcript{}
	if err := json.Unmarshal(out.Bytes(), tr); err != nil {
		t.Fatalf("parse transcript of %s: %v\n%s", script, err, errs.String())
	}
	return tr
}
