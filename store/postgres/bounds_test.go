package postgres_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
)

func large(i int) []byte {
	return fmt.Appendf(nil, `{"number":%d,"text":"%s"}`, i, strings.Repeat("x", 512<<10)) // %q is slow
}

// However much is noted at once, no transaction carries more than a group of writes does.
func TestNotes_largeOnesShareNoTransaction(t *testing.T) {
	db := migrated.New(t)
	log, err := store.Open(open(t, db.URL, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	const callers, size = 64, 16 << 20
	share(callers, callers, func(i int) {
		log.RecordRead(&effect.Record{
			Tenant: "default", Rule: effect.RuleNone, State: effect.StateCommitted, Arguments: large(i), CreatedAt: time.Now(), ChangedAt: time.Now(),
			Answer: effect.Answer{Kind: effect.AnswerResult, Body: large(i)},
		})
		log.Note(effect.Event{Kind: effect.EventOperation, Detail: large(i)})
	})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var reads, events, most int64
	err = connect(t, db.AdminURL).QueryRow(t.Context(), `
		WITH written AS (
		  SELECT seq >> 16 AS number, octet_length(arguments) + octet_length(answer) AS size, true AS reads
		  FROM undolog.effect e
		  JOIN undolog.transition t ON t.effect = e.id
		  UNION ALL
		  SELECT seq >> 16, octet_length(detail), false
		  FROM undolog.event)
		SELECT COUNT(*) FILTER (WHERE reads), COUNT(*) FILTER (WHERE NOT reads),
		       (SELECT MAX(size) FROM (SELECT SUM(size) AS size FROM written GROUP BY number) g)
		FROM written`).Scan(&reads, &events, &most)
	if err != nil {
		t.Fatal(err)
	}
	if reads != callers || events != callers || most > size {
		t.Errorf("%d reads, %d events, %d bytes in a transaction; want %d of each, and no more than %d bytes", reads, events, most, callers, size)
	}
}

// Small answers are read together, and large ones one by one, when the group has found them.
func TestReads_largeAnswersAreReadAlone(t *testing.T) {
	db := migrated.New(t)
	const calls, callers = 64, 64
	direct := open(t, db.URL, nil)
	call := func(i int) *store.Begin {
		p := keyed(t, fmt.Sprint("tenant-", i%5), fmt.Sprint(i))
		if i%4 == 0 { // half of the large ones are in their arguments
			p.Call.Arguments = large(i)
		}
		return p
	}
	answer := func(i int) []byte {
		if i%4 == 1 {
			return large(i)
		}
		return fmt.Appendf(nil, `{"number":%d}`, i)
	}
	share(calls, 8, func(i int) {
		move := commit(claimed(t, direct, call(i)))
		if move.Answer.Body = answer(i); i%8 < 4 { // more is to be read of what was moved twice
			move.State, move.Reason = effect.StateInDoubt, "lost"
			move.Answer = effect.Answer{}
			if _, err := direct.Append(t.Context(), call(i).Tenant(), move); err != nil {
				t.Error(err)
			}
			move = &effect.Transition{
				Effect: move.Effect, Ordinal: move.Ordinal + 1, Attempt: move.Attempt, State: effect.StateCommitted, By: "user:bob",
				Answer: effect.Answer{Kind: effect.AnswerResult, Body: answer(i)},
			}
		}
		if _, err := direct.Append(t.Context(), call(i).Tenant(), move); err != nil {
			t.Error(err)
		}
	})
	for name, address := range map[string]string{"prepared": db.URL, "through PgBouncer": pgtest.NewBouncer(t, db, nil).URL} {
		t.Run(name, func(t *testing.T) {
			proxy := pgtest.NewProxy(t, address)
			d := open(t, proxy.URL, nil)
			replay := func(i int) {
				begun, err := d.Begin(t.Context(), call(i))
				if err != nil || begun.Verdict.Action != effect.ActReplay || !bytes.Equal(begun.Record.Answer.Body, answer(i)) ||
					!bytes.Equal(begun.Record.Arguments, call(i).Call.Arguments) {
					t.Errorf("call %d: Begin = %+v, %v", i, begun, err)
				}
			}
			for i := range calls {
				replay(i) // their signatures are known now
			}
			before := d.Stats()
			share(calls, callers, replay)
			after := d.Stats()
			groups, reads := after.ReadGroups-before.ReadGroups, after.GroupedReads-before.GroupedReads
			if alone := reads - calls; alone < calls/8 || groups > reads*3/4 {
				t.Errorf("%d calls, half of them large, were %d reads in %d groups", calls, reads, groups)
			}
		})
	}
}
