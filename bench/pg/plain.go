package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/undolog/undolog/internal/pgcluster"
)

// plain is what a careful program would write: a transaction that looks whether the claim is there, inserts
// it, and another one that records the outcome.
type plain struct{ pool *pgxpool.Pool }

func openPlain(ctx context.Context, db *pgcluster.Database, callers int) (worker, error) {
	pool, err := openBaseline(ctx, db, callers)
	return &plain{pool}, err
}

func openBaseline(ctx context.Context, db *pgcluster.Database, callers int) (*pgxpool.Pool, error) {
	if err := makeBaseline(ctx, db); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(min(callers, 64))
	return pgxpool.NewWithConfig(ctx, config)
}

func (p *plain) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	return forAWhile(ctx, callers, d, nothing, p.effect)
}

func (p *plain) effect(ctx context.Context, _ int, _ *stopwatch) error {
	signature := rand.Text() + rand.Text()
	var id string
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var found string
		err := tx.QueryRow(ctx, `SELECT id FROM claim WHERE signature = $1 FOR UPDATE`, signature).Scan(&found)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO claim (id, signature, arguments) VALUES (gen_random_uuid(), $1, $2) RETURNING id`,
			signature, padding).Scan(&id)
	})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var found bool
		err := tx.QueryRow(ctx, `SELECT true FROM outcome WHERE id = $1`, id).Scan(&found)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO outcome (id, ordinal, answer) VALUES ($1, 1, $2)`, id, padding)
		return err
	})
}

func (p *plain) close() error {
	p.pool.Close()
	return nil
}

// floor is the least that any program of pgx does for two durable round trips: a row each, and nothing comes back.
type floor struct{ pool *pgxpool.Pool }

func openFloor(ctx context.Context, db *pgcluster.Database, callers int) (worker, error) {
	pool, err := openBaseline(ctx, db, callers)
	return &floor{pool}, err
}

func (f *floor) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	return forAWhile(ctx, callers, d, nothing, f.inserts)
}

func (f *floor) inserts(ctx context.Context, _ int, _ *stopwatch) error {
	id := uuid.New()
	if _, err := f.pool.Exec(ctx, `INSERT INTO claim (id, signature, arguments) VALUES ($1, $2, $3)`, id, rand.Text()+rand.Text(), padding); err != nil {
		return err
	}
	_, err := f.pool.Exec(ctx, `INSERT INTO outcome (id, ordinal, answer) VALUES ($1, 1, $2)`, id, padding)
	return err
}

func (f *floor) close() error {
	f.pool.Close()
	return nil
}
