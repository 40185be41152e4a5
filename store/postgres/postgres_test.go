package postgres_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(t *testing.T) func(now func() time.Time) store.Driver {
		return opener(t, pgtest.New(t).URL)
	}})
}

func opener(t *testing.T, url string) func(now func() time.Time) store.Driver {
	return func(now func() time.Time) store.Driver {
		d, err := postgres.Open(t.Context(), url, &postgres.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}
