-- What a group of writes sends: rows as one array of rows. Of an array for each of thirty columns the server makes
-- thirty stores, from which it takes the rows together again.
--
-- A program names the attributes in the order of these types: a later version that needs more makes types of its own.
--
-- The functions are for connections on which nothing can be prepared, because a pooler shares them: a session plans
-- once what is in a function. They say what the program's own statements say, with the tenant and queueTenant's settings.
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

-- +goose StatementBegin
CREATE FUNCTION undolog.insert_effects(own_tenant text, fixed_now timestamptz, added undolog.new_effect[])
RETURNS TABLE (id uuid, seq bigint, created_at timestamptz) LANGUAGE plpgsql SET search_path = pg_catalog
SET plan_cache_mode = 'force_generic_plan' SET enable_seqscan = 'off' SET enable_bitmapscan = 'off' SET lock_timeout = '2s' AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('undolog.tenant', own_tenant, true);
  RETURN QUERY
    INSERT INTO undolog.effect (
      id, seq, caller, run_hash, created_at, lease_until, timeout_at, generation, signature, window_signature,
      args_digest, complete, tenant, principal, session, trace, server, tool, tier, rule, scope,
      key, run, occurrence, policy, source, lookalike_of, state, owner, arguments)
    SELECT
      n.id, (pg_current_xact_id()::text::bigint << 16) + n.place, n.caller, n.run_hash,
      COALESCE(n.at, fixed_now, now()),
      COALESCE(n.at, fixed_now, now()) + n.lease * interval '1 microsecond',
      COALESCE(n.at, fixed_now, now()) + n.timeout * interval '1 microsecond',
      n.generation, n.signature, n.window_signature,
      n.args_digest, n.complete, o.tenant, n.principal, n.session, n.trace, n.server, n.tool,
      n.tier::undolog.tier, n.rule::undolog.rule, n.scope,
      n.key, n.run, n.occurrence, n.policy, n.source, n.lookalike_of, 'claimed', n.owner, n.arguments
    FROM (SELECT own_tenant AS tenant) o
    CROSS JOIN unnest(added) AS n
    WHERE n.sure OR (
        SELECT true FROM undolog.effect e
        WHERE e.window_signature = n.window_signature AND e.rule IN ('key', 'run') LIMIT 1) IS NULL AND (n.rule = 'window' OR (SELECT true FROM undolog.effect e WHERE e.signature = n.window_signature LIMIT 1) IS NULL)
    ON CONFLICT DO NOTHING
    RETURNING id, seq, created_at;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION undolog.insert_moves(own_tenant text, fixed_now timestamptz, added undolog.new_move[])
RETURNS TABLE (effect uuid, ordinal integer, at timestamptz) LANGUAGE plpgsql SET search_path = pg_catalog
SET plan_cache_mode = 'force_generic_plan' SET enable_seqscan = 'off' SET enable_bitmapscan = 'off' SET lock_timeout = '2s' AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('undolog.tenant', own_tenant, true);
  RETURN QUERY
    INSERT INTO undolog.transition (
      effect, ordinal, attempt, at, is_error, tenant, state, owner, by, reason, continuation, answer_kind, answer)
    SELECT
      n.effect, n.ordinal, n.attempt, COALESCE(n.at, fixed_now, now()), n.is_error, own_tenant,
      n.state::undolog.state, n.owner, n.by, n.reason, n.continuation, n.answer_kind, n.answer
    FROM unnest(added) AS n
    ON CONFLICT (effect, ordinal) DO NOTHING
    RETURNING effect, ordinal, at;
END
$$;
-- +goose StatementEnd
