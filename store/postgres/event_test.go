package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
)

// A transaction that took its number early and commits late is not passed over by who reads on.
func TestEvents_NoneSlipsBehindAReader(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	write := func(kind string) {
		t.Helper()
		if err := d.Write(t.Context(), &store.Notes{Events: []effect.Event{{Tenant: "default", Kind: kind}}}); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	late := connect(t, db.URL)
	tx, err := late.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`SELECT set_config('undolog.tenant', 'default', true)`,
		`INSERT INTO undolog.event (id, seq, at, tenant, effect, kind, principal, server, tool)
		 VALUES (gen_random_uuid(), pg_current_xact_id()::text::bigint << 16, now(), 'default', '', 'late', '', '', '')`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	write("second")
	var after int64
	read := func() (kinds []string) {
		t.Helper()
		events, err := d.Events(t.Context(), "default", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			kinds, after = append(kinds, ev.Kind), ev.Seq
		}
		return kinds
	}
	var seen []string
	within(t, time.Minute, "first event", func() bool { seen = append(seen, read()...); return len(seen) > 0 })
	if fmt.Sprint(seen) != "[first]" {
		t.Fatalf("read %v while one is under way", seen)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "the others", func() bool { seen = append(seen, read()...); return len(seen) >= 3 })
	if fmt.Sprint(seen) != "[first late second]" {
		t.Errorf("read %v", seen)
	}
}

func TestEvents_ReadersAgreeUnderManyWriters(t *testing.T) {
	db := migrated.New(t)
	drivers := []store.Driver{open(t, db.URL, nil), open(t, db.URL, nil)}
	writes := drivertest.Scale(1000)
	done := make(chan struct{})
	follow := func(d store.Driver, got *[]int64) {
		var after int64
		for last := false; ; {
			events, err := d.Events(t.Context(), "default", after, 7)
			if err != nil {
				t.Error(err)
				return
			}
			for _, ev := range events {
				*got, after = append(*got, ev.Seq), ev.Seq
			}
			select {
			case <-done:
				last = last || len(*got) >= writes
			default:
			}
			if last && len(events) == 0 {
				return
			}
		}
	}
	var seen [2][]int64
	var readers sync.WaitGroup
	for i, d := range drivers {
		readers.Go(func() { follow(d, &seen[i]) })
	}
	share(writes, 16, func(i int) {
		if err := drivers[i%2].Write(t.Context(), &store.Notes{Events: []effect.Event{{Tenant: "default", Kind: "k"}}}); err != nil {
			t.Error(err)
		}
	})
	close(done)
	readers.Wait()
	if len(seen[0]) != writes || fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) {
		t.Errorf("readers saw %d and %d events of %d", len(seen[0]), len(seen[1]), writes)
	}
}
