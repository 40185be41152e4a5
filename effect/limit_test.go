package effect_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

func TestContract_Spends(t *testing.T) {
	amount, err := effect.ParseAmount("args.amount")
	if err != nil {
		t.Fatal(err)
	}
	c := &effect.Contract{Source: "policy p.yaml:3", Limits: []effect.Limit{
		{Name: "runs", Per: effect.PerRun, Max: 5 * effect.Unit},
		{Name: "sums", Per: effect.PerPrincipal, Max: 100 * effect.Unit, Within: time.Hour, Units: amount},
		{Name: "all", Per: effect.PerTenant, Max: effect.Unit},
	}}
	spends := func(run, principal string) []effect.Spend {
		return []effect.Spend{
			{Limit: "runs", Subject: run, Units: effect.Unit, Max: 5 * effect.Unit},
			{Limit: "sums", Subject: principal, Units: 12_340_000, Max: 100 * effect.Unit, Within: time.Hour},
			{Limit: "all", Subject: "tenant:", Units: effect.Unit, Max: effect.Unit},
		}
	}
	arguments := json.RawMessage(`{"amount":12.34}`)
	for _, tt := range []struct {
		name string
		call effect.Call
		want []effect.Spend
	}{
		{"of a run and a principal", effect.Call{Run: "r1", Principal: "agent:bot", Arguments: arguments}, spends("run:r1", "principal:agent:bot")},
		{"without a run, of its principal's account", effect.Call{Principal: "agent:bot", Arguments: arguments}, spends("no run:agent:bot", "principal:agent:bot")},
		{"of nobody, of nobody's account", effect.Call{Arguments: arguments}, spends("no run:", "principal:")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Spends(&tt.call)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Spends (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("a call that cannot be counted is refused", func(t *testing.T) {
		_, err := c.Spends(&effect.Call{Arguments: json.RawMessage(`{}`)})
		invalid, ok := errors.AsType[*effect.InvalidError](err)
		if !ok || invalid.Pointer != "/arguments" {
			t.Fatalf("error %v, want an *InvalidError", err)
		}
		for _, want := range []string{"limit sums", "p.yaml:3", "no such key: amount", "has(args.amount)"} {
			if !strings.Contains(invalid.Reason, want) {
				t.Errorf("reason %q does not contain %q", invalid.Reason, want)
			}
		}
	})
	t.Run("in shadow it is not", func(t *testing.T) {
		shadow := *c
		shadow.Shadow = true
		got, err := shadow.Spends(&effect.Call{Arguments: json.RawMessage(`{}`)})
		if err != nil || len(got) != 2 {
			t.Errorf("Spends = %+v, %v", got, err)
		}
	})
}
