package gateway_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be its own upstream process: see process_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv("GATEWAY_TEST_PROCESS"); role != "" {
		os.Exit(playProcess(role))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
