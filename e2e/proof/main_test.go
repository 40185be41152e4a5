package proof_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// A history that fails is made again by its seed, which is printed: no file is left beside the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "20s"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err) // it is a boolean, and a duration
			}
		}
	}
	goleak.VerifyTestMain(m)
}
