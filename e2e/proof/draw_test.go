package proof_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/undolog/undolog/effect"
)

const (
	window    = 10 * time.Minute
	lease     = 20 * time.Minute
	timeout   = 3 * time.Hour
	decideFor = 24 * time.Hour
	useFor    = 30 * time.Minute
)

var (
	tenants    = []string{"a", "b"}
	principals = []string{"agent:x", "agent:x", "agent:y", "agent:z", ""}
	tools      = []string{"pay", "mail", "note"}
)

// drawContracts says what holds for each tool in one history.
func drawContracts(t *rapid.T) map[string]*effect.Contract {
	contracts := map[string]*effect.Contract{}
	for _, tool := range tools {
		contracts[tool] = drawContract(t, tool)
	}
	return contracts
}

func drawContract(t *rapid.T, tool string) *effect.Contract {
	repeats := []effect.Repeat{effect.RepeatRun, effect.RepeatReplay, effect.RepeatAsk}
	c := &effect.Contract{
		Tier: rapid.SampledFrom([]effect.Tier{
			effect.TierIrreversible, effect.TierIrreversible, effect.TierCompensable, effect.TierIdempotent}).Draw(t, "tier of "+tool),
		Volatile: []string{"ref"}, Window: window, Timeout: timeout, Lease: lease, NoKeyArgument: true, Source: "test",
		Repeat: rapid.SampledFrom(repeats).Draw(t, "repeat"), RepeatError: rapid.SampledFrom(repeats).Draw(t, "repeat of errors"),
		Lookalike:   rapid.SampledFrom(repeats[:1:1]).Draw(t, "look-alikes"),
		OnToolError: rapid.SampledFrom([]effect.State{effect.StateCommitted, effect.StateFailed}).Draw(t, "on error"),
		Asking:      effect.Asking{Quorum: 1, DecideFor: decideFor, UseFor: useFor},
	}
	if rapid.Bool().Draw(t, "look-alikes ask") {
		c.Lookalike = effect.RepeatAsk
	}
	c.ShareTenant = rapid.IntRange(0, 3).Draw(t, "share") == 0
	c.Limits = drawLimits(t)
	drawAsking(t, c)
	return c
}

func drawAsking(t *rapid.T, c *effect.Contract) {
	c.Approve = rapid.Bool().Draw(t, "asks")
	c.Asking.Quorum = rapid.IntRange(1, 2).Draw(t, "quorum")
	c.Asking.Approvers = nil
	if rapid.Bool().Draw(t, "named approvers") {
		c.Asking.Approvers = people[:2]
	}
	c.Deny = ""
	if rapid.IntRange(0, 9).Draw(t, "denies") == 0 {
		c.Deny = "not now"
	}
}

func drawLimits(t *rapid.T) []effect.Limit {
	if rapid.IntRange(0, 2).Draw(t, "limits") > 0 {
		return nil
	}
	limits := []effect.Limit{{
		Name: "calls", Per: rapid.SampledFrom([]effect.LimitPer{effect.PerRun, effect.PerPrincipal, effect.PerTenant}).Draw(t, "per"),
		Max: 3 * effect.Unit, Within: time.Hour,
	}}
	if rapid.Bool().Draw(t, "sum") {
		sum, err := effect.ParseAmount("args.amount")
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, effect.Limit{Name: "sum", Per: effect.PerTenant, Max: 45 * effect.Unit, Within: 2 * time.Hour, Units: sum})
	}
	return limits
}

// newPolicy changes what a tool asks; what it is stays.
func (h *history) newPolicy(t *rapid.T) {
	tool := rapid.SampledFrom(tools).Draw(t, "tool")
	c := *h.model.contracts[tool]
	drawAsking(t, &c)
	h.model.contracts[tool] = &c
}

// draw is a call: often one that was made before, or nearly so.
func (h *history) draw(t *rapid.T) *wish {
	w := wish{
		tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), principal: rapid.SampledFrom(principals).Draw(t, "principal"),
		tool: rapid.SampledFrom(tools).Draw(t, "tool"), payment: h.drawPayment(t),
		key: rapid.SampledFrom([]string{"", "", "", "k1", "k2"}).Draw(t, "key"), run: rapid.SampledFrom([]string{"", "", "r1"}).Draw(t, "run"),
		occurrence: rapid.SampledFrom([]string{"", "", "", "2"}).Draw(t, "occurrence"),
	}
	if len(h.wishes) > 0 && rapid.IntRange(0, 9).Draw(t, "new") < 7 {
		w = h.like(t, w)
	}
	w.round = ""
	if d := h.model.latest(w.identity()); d != nil && len(d.rounds) > 0 && rapid.Bool().Draw(t, "goes on") {
		w.round = rapid.SampledFrom(append([]string{"round-unknown"}, d.rounds...)).Draw(t, "round")
	}
	w.received = rapid.SampledFrom([]time.Time{{}, h.model.now, h.model.now.Add(-4 * time.Minute)}).Draw(t, "received")
	h.wishes = append(h.wishes, w)
	return &w
}

// like is a call that was made before, sometimes with one thing of another.
func (h *history) like(t *rapid.T, other wish) wish {
	w := h.wishes[len(h.wishes)-1-rapid.IntRange(0, min(len(h.wishes), 4)-1).Draw(t, "before")]
	switch rapid.IntRange(0, 15).Draw(t, "but for") {
	case 0:
		w.tenant = other.tenant
	case 1:
		w.principal = other.principal
	case 2:
		w.tool = other.tool
	case 3:
		w.payment = other.payment
	case 4, 5:
		w.payment.Ref = other.payment.Ref
	case 6:
		w.key = other.key
	case 7:
		w.run = other.run
	case 8:
		w.occurrence = other.occurrence
	}
	return w
}

func (h *history) drawPayment(t *rapid.T) payment {
	return payment{
		Amount: rapid.SampledFrom([]int{10, 11, 30}).Draw(t, "amount"), To: rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "to"),
		Ref: rapid.IntRange(1, 2).Draw(t, "ref"),
	}
}
