package postgres_test

import (
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// An effect that failed long ago is begun again and answered while pruning has looked at it and waits for another row:
// what it is answered with is not what pruning was to take away.
func TestPrune_doesNotTakeWhatIsAnsweredMeanwhile(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	fail := func(key string) {
		failed := commit(claimed(t, d, keyed(t, "default", key)))
		failed.State, failed.Answer = effect.StateFailed, effect.Answer{Kind: effect.AnswerError, Body: []byte(`{"code":-32602}`)}
		if _, err := d.Append(t.Context(), "default", failed); err != nil {
			t.Fatal(err)
		}
	}
	fail("begun again")
	fail("held")
	before := time.Now().Add(time.Second)
	holder := connect(t, db.AdminURL)
	execute(t, holder, `BEGIN; SELECT FROM undolog.effect WHERE key = 'held' FOR UPDATE`)
	pruned := make(chan error, 1)
	go func() {
		_, err := d.Prune(t.Context(), &store.Pruning{Before: before})
		pruned <- err
	}()
	watcher := connect(t, db.AdminURL)
	within(t, time.Minute, "prune that waits", func() (waits bool) {
		if err := watcher.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	settled := commit(claimed(t, d, keyed(t, "default", "begun again")))
	settled.At = before.Add(time.Hour)
	if _, err := d.Append(t.Context(), "default", settled); err != nil {
		t.Fatal(err)
	}
	execute(t, holder, `ROLLBACK`)
	if err := <-pruned; err != nil {
		t.Fatal(err)
	}
	begun, err := d.Begin(t.Context(), keyed(t, "default", "begun again"))
	if err != nil || begun.Verdict.Action != effect.ActReplay || begun.Record.Answer.Pruned || string(begun.Record.Answer.Body) != `{"ok":1}` {
		t.Errorf("Begin = %+v, %v; want the answer", begun, err)
	}
}
