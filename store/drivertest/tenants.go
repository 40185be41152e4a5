package drivertest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

// testTenantList asks who has anything in the log. A backend may know more tenants than have effects.
func testTenantList(t *testing.T, h Harness) {
	tenants := []string{"acme", "beta", "zeta"}
	w := newWorld(t, h)
	p := w.process()
	for _, tenant := range tenants {
		for _, k := range []string{"1", "2"} {
			p.begin(charge(key(k), func(c *effect.Call) { c.Tenant = tenant }), contract())
		}
	}
	got, err := w.process().Tenants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(got) {
		t.Errorf("Tenants = %q, which is not in order", got)
	}
	known := slices.DeleteFunc(got, func(tenant string) bool { return !slices.Contains(tenants, tenant) })
	if diff := cmp.Diff(tenants, known); diff != "" {
		t.Errorf("Tenants (-want +got)\n%s", diff)
	}
}
