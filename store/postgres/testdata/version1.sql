-- What programs of schema version 1 send, word for word: replicas of theirs go on beside newer ones. It never
-- changes. A line of "== NAME" begins each statement.

== insert_effect
INSERT INTO undolog.effect (
  id, seq, caller, run_hash, created_at, lease_until, timeout_at, generation, signature, window_signature,
  args_digest, complete, tenant, principal, session, trace, server, tool, tier, rule, scope,
  key, run, occurrence, policy, source, lookalike_of, state, owner, arguments)
SELECT
  n.id, (pg_current_xact_id()::text::bigint << 16) + n.place, n.caller, n.run_hash,
  COALESCE(n.at, $2::timestamptz, now()),
  COALESCE(n.at, $2::timestamptz, now()) + n.lease * interval '1 microsecond',
  COALESCE(n.at, $2::timestamptz, now()) + n.timeout * interval '1 microsecond',
  n.generation, n.signature, n.window_signature,
  n.args_digest, n.complete, $1::text, n.principal, n.session, n.trace, n.server, n.tool,
  n.tier::undolog.tier, n.rule::undolog.rule, n.scope,
  n.key, n.run, n.occurrence, n.policy, n.source, n.lookalike_of, 'claimed', n.owner, n.arguments
FROM (VALUES (
  $3::uuid, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::timestamptz, $10::integer,
  $11::bytea, $12::bytea, $13::bytea, $14::bytea,
  $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::text, $22::text,
  $23::text, $24::text, $25::text, $26::text, $27::text, $28::text, $29::text,
  $30::bytea, $31::boolean))
  AS n(id, place, caller, run_hash, lease, timeout, at, generation,
       signature, window_signature, args_digest, complete,
       principal, session, trace, server, tool, tier, rule, scope,
       key, run, occurrence, policy, source, lookalike_of, owner,
       arguments, sure)
WHERE n.sure
   OR (SELECT true FROM undolog.effect e WHERE e.signature = n.signature LIMIT 1) IS NULL
  AND (SELECT true FROM undolog.effect e
       WHERE e.window_signature = n.window_signature AND e.rule IN ('key', 'run') LIMIT 1) IS NULL
  AND (n.rule = 'window'
       OR (SELECT true FROM undolog.effect e WHERE e.signature = n.window_signature LIMIT 1) IS NULL)
ON CONFLICT DO NOTHING
RETURNING id, seq, created_at

== settle
INSERT INTO undolog.transition (
  effect, ordinal, attempt, at, is_error, tenant, state, owner, by, reason, continuation, answer_kind, answer)
SELECT
  n.effect, n.ordinal, n.attempt, COALESCE(n.at, $2::timestamptz, now()), n.is_error, $1::text,
  n.state::undolog.state, n.owner, n.by, n.reason, n.continuation, n.answer_kind, n.answer
FROM (VALUES (
  $3::uuid, $4::integer, $5::integer, $6::timestamptz,
  $7::text, $8::text, $9::text, $10::text, $11::text, $12::text, $13::boolean, $14::bytea))
  AS n(effect, ordinal, attempt, at, state, owner, by, reason, continuation, answer_kind, is_error, answer)
ON CONFLICT (effect, ordinal) DO NOTHING
RETURNING effect, ordinal, at

== move
INSERT INTO undolog.transition (
  effect, ordinal, attempt, at, lease_until, timeout_at, is_error, tenant, state, owner,
  by, reason, continuation, answer_kind, answer)
SELECT
  $2::uuid, $3::integer, $4::integer, COALESCE($5::timestamptz, $1::timestamptz, now()), $6::timestamptz, $7::timestamptz,
  $8::boolean, e.tenant, $9::text::undolog.state, CASE WHEN $10::text <> '' THEN $10 ELSE l.owner END,
  $11::text, $12::text, $13::text, $14::text, $15::bytea
FROM undolog.effect e
LEFT JOIN LATERAL (
  SELECT * FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
CROSS JOIN LATERAL (
  SELECT COALESCE(t.ordinal, 0) AS ordinal, COALESCE(t.attempt, 1) AS attempt, COALESCE(t.state, e.state) AS state,
         COALESCE(t.owner, e.owner) AS owner,
         CASE WHEN t.effect IS NULL THEN e.lease_until ELSE t.lease_until END AS lease_until,
         CASE WHEN t.effect IS NULL THEN e.timeout_at ELSE t.timeout_at END AS timeout_at) l
LEFT JOIN undolog.owner o ON o.id = l.owner
WHERE e.id = $2 AND l.ordinal = $3 - 1 AND l.state = ANY ($16::text[]::undolog.state[])
  AND ($9 = 'claimed' OR l.attempt = $4)
  AND CASE
      WHEN $10 <> '' THEN l.owner = $10
      WHEN l.state <> 'claimed' THEN true
      ELSE COALESCE(COALESCE(l.lease_until, o.until) <= COALESCE($1, now()), true)
        OR COALESCE(l.timeout_at <= COALESCE($1, now()), false)
      END
ON CONFLICT (effect, ordinal) DO NOTHING
RETURNING at

== claim
INSERT INTO undolog.transition (
  effect, ordinal, attempt, at, lease_until, timeout_at, position, caller, begun, is_error, tenant, state, owner,
  by, reason, continuation, answer_kind)
VALUES (
  $2::uuid, $3::integer, $4::integer, COALESCE($1::timestamptz, now()),
  COALESCE($1, now()) + $5::bigint * interval '1 microsecond', COALESCE($1, now()) + $6::bigint * interval '1 microsecond',
  CASE WHEN $7::bigint IS NOT NULL THEN pg_current_xact_id()::text::bigint << 16 END, $7, $8::uuid, false, $9::text, 'claimed',
  $10::text, '', '', $11::text, '')
ON CONFLICT (effect, ordinal) DO NOTHING
RETURNING at

== record
SELECT
  e.seq, e.id, e.tenant, e.principal, e.session, e.trace, e.server, e.tool, e.tier, e.rule, e.scope,
  e.signature, e.window_signature, e.generation, e.key, e.run, e.occurrence, e.args_digest, e.complete,
  e.policy, e.source, e.lookalike_of, e.created_at, e.arguments,
  e.state, e.owner, e.lease_until, e.timeout_at,
  t.ordinal, t.attempt, t.state, t.at, t.owner, t.lease_until, t.timeout_at,
  t.by, t.reason, t.continuation, COALESCE(a.answer_kind, t.answer_kind), COALESCE(a.is_error, t.is_error),
  COALESCE(a.answer, t.answer), o.until, d.at, t.begun
FROM undolog.effect e
LEFT JOIN LATERAL (
  SELECT * FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
LEFT JOIN LATERAL (
  SELECT answer_kind, is_error, answer FROM undolog.transition
  WHERE t.ordinal >= 2 AND t.answer_kind = '' AND effect = e.id AND answer_kind <> ''
  ORDER BY ordinal DESC
  LIMIT 1) a ON true
LEFT JOIN undolog.owner o ON o.id = COALESCE(t.owner, e.owner)
LEFT JOIN undolog.delivery d ON d.effect = e.id WHERE e.id = $1

== prune_effect
UPDATE undolog.effect SET arguments = ''
WHERE id = ANY ($1::uuid[]) AND octet_length(arguments) > 0
RETURNING id

== prune_transition
UPDATE undolog.transition SET answer = ''
WHERE effect = ANY ($1::uuid[]) AND octet_length(answer) > 0
RETURNING effect
