package gateway_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be its own upstream process: see process_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv("GATEWAY_TEST_PROCESS"); role != "" {
		os.Exit(playProcess(role))
	}
	code := m.Run()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks tells of goroutines that do not end. A busy machine has longer to end them than goleak gives it.
func leaks(opts ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(opts...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func noLeaks(t *testing.T, opts ...goleak.Option) {
	t.Helper()
	if err := leaks(opts...); err != nil {
		t.Error(err)
	}
}
