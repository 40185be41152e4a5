package e2e_test

import (
	"flag"
	"os"
	"testing"
)

// The crash rounds wait most of the time, for leases to run out: more of them at a time cost nothing.
func TestMain(m *testing.M) {
	if os.Getenv(parrotEnv) != "" {
		parrot()
		return
	}
	if noted := os.Getenv(oddEnv); noted != "" {
		odd(noted)
		return
	}
	if how := os.Getenv(manglerEnv); how != "" {
		mangle(how)
		return
	}
	if dir := os.Getenv(workerEnv); dir != "" {
		work(dir)
		return
	}
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		if err := p.Value.Set("6"); err != nil {
			panic(err) // it is a number
		}
	}
	os.Exit(m.Run())
}
