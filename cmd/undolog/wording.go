package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// saidError says to a person what its cause says to a program.
type saidError struct {
	text  string
	cause error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.cause }

// notThere puts in words that the log has no effect of that id.
func notThere(cmd *cobra.Command, id string, err error) error {
	place, placeErr := logPlace(cmd)
	if placeErr != nil || !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return &saidError{cause: err, text: fmt.Sprintf(
		"tenant %s has no effect %s in %s: \"undolog log\" lists what there is; --tenant and --db name another tenant or log",
		tenantFlag(cmd), id, place)}
}

// notThereGrant puts in words that the tenant has no grant of that id.
func notThereGrant(tenant, id string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return &saidError{cause: err, text: fmt.Sprintf("tenant %s has no grant %s: \"undolog grant list --all\" lists what there is", tenant, id)}
}

// notResolved puts in words why a person cannot settle an effect.
func notResolved(err error, now time.Time) error {
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	state := conflict.Record.StateAt(now)
	text := fmt.Sprintf("effect %s is %s, and only one in doubt or waiting can be resolved: nothing was changed", conflict.ID, state)
	switch state {
	case effect.StateClaimed:
		text = fmt.Sprintf("effect %s is under way: wait for its outcome; nothing was changed", conflict.ID)
	case effect.StateCommitted:
		text += fmt.Sprintf("; \"undolog again %s\" lets the same call run once more", conflict.Record.Reference())
	}
	return &saidError{text, err}
}

// notAgain puts in words why a call cannot be allowed once more.
func notAgain(err error, now time.Time) error {
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	state := conflict.Record.StateAt(now)
	text := fmt.Sprintf("effect %s is %s: settle it first with \"undolog resolve %s\"", conflict.ID, state, conflict.Record.Reference())
	switch {
	case conflict.Record.Tier == effect.TierRead:
		text = fmt.Sprintf("effect %s is a read: equal calls always run, there is nothing to allow", conflict.ID)
	case state == effect.StateClaimed:
		text = fmt.Sprintf("effect %s is under way: wait for its outcome", conflict.ID)
	}
	return &saidError{text, err}
}
