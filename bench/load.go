package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// The load: calls with 1 KiB of arguments and 1 KiB of answer.
var (
	padding = strings.Repeat("x", 1000)
	answer  = []byte(`{"content":[{"type":"text","text":"` + padding + `"}]}`)
)

func arguments(i int) string {
	return fmt.Sprintf(`{"account":"bench","amount":%d,"reference":"%s"}`, i+1, padding)
}

// irreversible is the contract of a tool of which nothing is known.
func irreversible() *effect.Contract { return effect.DefaultContract(nil, false) }

// beginParams is the claim of the i-th call, each another one.
func beginParams(c *effect.Contract, i int) (*store.BeginParams, error) {
	call := &effect.Call{Principal: "agent:bench", Server: "payments", Tool: "charge", Arguments: []byte(arguments(i))}
	id, err := c.Identify(call)
	if err != nil {
		return nil, err
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: c}, nil
}

// openLog opens a new effect log in the run's directory.
func (b *bench) openLog(ctx context.Context, name string) (*store.Log, error) {
	driver, err := sqlite.Open(ctx, filepath.Join(b.dir, name), nil)
	if err != nil {
		return nil, err
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return log, nil
}

// median returns the middle of durations that are sorted.
func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }
