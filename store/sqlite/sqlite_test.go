package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/sqlite"
)

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(t *testing.T) func(now func() time.Time) store.Driver {
		path := filepath.Join(t.TempDir(), "log.db")
		return func(now func() time.Time) store.Driver {
			d, err := sqlite.Open(t.Context(), path, &sqlite.Options{Now: now})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}})
}
