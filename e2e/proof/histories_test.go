package proof_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
	"github.com/undolog/undolog/store/sqlite"
)

func filter(tenant string) *store.Filter { return &store.Filter{Tenant: tenant, Limit: 1000} }

// Calls, people, clocks and crashes in any order: what the log decides is what the model of the design says, and
// what the ledger at the tool shows agrees with it.
func TestHistories_onSQLite(t *testing.T) {
	dir := t.TempDir()
	var n atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n.Add(1)))
		defer func() {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
					rt.Error(err)
				}
			}
		}()
		runHistory(t, rt, "", func(now func() time.Time) (store.Driver, error) {
			return sqlite.Open(t.Context(), path, &sqlite.Options{Now: now})
		})
	})
}

func TestHistories_onPostgreSQL(t *testing.T) {
	url := pgtest.New(t).URL
	var n atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		runHistory(t, rt, fmt.Sprintf("h%d-", n.Add(1)), func(now func() time.Time) (store.Driver, error) {
			return postgres.Open(t.Context(), url, &postgres.Options{Now: now})
		})
	})
}

func runHistory(t *testing.T, rt *rapid.T, name string, open func(now func() time.Time) (store.Driver, error)) {
	h := newHistory(rt, t.Context(), name, open)
	defer h.close(rt)
	rt.Repeat(h.actions())
	h.judge(rt)
}
