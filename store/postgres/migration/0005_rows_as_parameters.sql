-- What a group of writes sends: rows as one array of rows. Of an array for each of thirty columns the server makes
-- thirty stores, from which it takes the rows together again.
--
-- A program names the attributes in the order of these types: a later version that needs more makes types of its own.
--
-- Locks: everything here is new, so that nothing waits.

-- +goose Up

CREATE TYPE undolog.new_effect AS (
  id uuid, place bigint, caller bigint, run_hash bigint, lease bigint, timeout bigint, at timestamptz, generation integer,
  signature bytea, window_signature bytea, args_digest bytea, complete bytea,
  principal text, session text, trace text, server text, tool text, tier text, rule text, scope text,
  key text, run text, occurrence text, policy text, source text, lookalike_of text, owner text,
  arguments bytea, sure boolean);

CREATE TYPE undolog.new_move AS (
  effect uuid, ordinal integer, attempt integer, at timestamptz,
  state text, owner text, by text, reason text, continuation text, answer_kind text, is_error boolean, answer bytea);
