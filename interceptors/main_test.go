package interceptors_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be a host on its standard streams: see announce_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(asHost) != "" {
		playHost()
		return
	}
	goleak.VerifyTestMain(m)
}
