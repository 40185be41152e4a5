package chaos_test

import (
	"testing"
	"time"

	"github.com/undolog/undolog/internal/pgtest"
)

// Somebody changes the isolation of the role under replicas that run: the database then refuses some of
// what they write, and nothing is wrong.
func TestIsolation_setAtTheRoleWhileReplicasRun(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			admin := connect(t, db.AdminURL)
			replicas := differentReplicas(t, db, steady, nil)
			execute(t, admin, `ALTER ROLE `+db.Name+` SET default_transaction_isolation = '`+level+`'`)
			endSessions(t, admin, db)
			var now string
			if err := connect(t, db.URL).QueryRow(t.Context(), `SHOW transaction_isolation`).Scan(&now); err != nil || now != level {
				t.Fatalf("a new session has %q, %v", now, err)
			}
			l := startLoad(t, 64, newTool(t, briefly), replicas...)
			rest(t.Context(), scaled(2*time.Second, 20*time.Second))
			l.reckon()
		})
	}
}
