-- The effect log. Rows are inserted and not updated: an effect's first row is its first claim, and every
-- later move is a row of its own, whose place (effect, ordinal) is the compare-and-set. Whoever inserts
-- the next ordinal has moved the effect; everybody else is told where it stands.
--
-- Locks: everything here is new, so that nothing waits. Later migrations only add, so that replicas of the
-- version before go on beside them; one that takes something away raises compatibility.oldest.
--
-- Order: seq is the number of the transaction that wrote the row, shifted by 16 bits, and the row's place
-- in it. No sequence could say which rows are still to come: a transaction that took its number early can
-- commit late. All rows below pg_snapshot_xmin(pg_current_snapshot()) are there or never will be, so that
-- who reads on from a seq, and only up to there, misses none and agrees with everybody else on the order.
--
-- Tenants: every table with calls in it has a policy that is forced on its owner too. The tenant is set for
-- the transaction; without it the setting is absent or '', and nothing is seen. The policies say IS NOT
-- DISTINCT FROM because no index answers that: an equality would have the planner walk through a tenant's
-- rows while statistics are young, where a signature names the one that is wanted.
--
-- Times are to the microsecond. Payloads are bytea: bytes as they came, never parsed here. Texts have their
-- U+0000, which PostgreSQL refuses, and bytes that are no UTF-8 escaped by the program.

-- +goose Up

-- Types and not CHECKs: they cost no row anything. Later versions add values.
CREATE TYPE undolog.tier AS ENUM ('read', 'idempotent', 'compensable', 'irreversible');
CREATE TYPE undolog.rule AS ENUM ('key', 'run', 'window', 'none');
CREATE TYPE undolog.state AS ENUM (
  'awaiting_approval', 'claimed', 'waiting', 'committed', 'failed', 'released', 'in_doubt', 'denied',
  'expired', 'void', 'compensating', 'compensated', 'compensation_failed');

-- The oldest schema version whose programs can read and write this one.
CREATE TABLE undolog.compatibility (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  oldest integer NOT NULL
);
INSERT INTO undolog.compatibility (oldest) VALUES (1);

-- Outside the policies: which tenants there are, for what has to be done for each of them.
CREATE TABLE undolog.tenant (
  id         text PRIMARY KEY CHECK (id <> ''),
  first_seen timestamptz NOT NULL DEFAULT now()
);

-- Outside the policies: one heartbeat a process. A claim whose owner has no row, or an old one, is in
-- doubt. The only rows that are updated often, and in place.
CREATE TABLE undolog.owner (
  id    text PRIMARY KEY,
  until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- caller is a hash of tenant, principal and server; NULL for reads. run_hash is one of the run, which is the
-- caller's to name and of any length; NULL without one. The first transition, ordinal 0 and attempt 1, is
-- part of the row: a whole call is two rows. arguments becomes empty, which no JSON is, when it is pruned.
CREATE TABLE undolog.effect (
  id               uuid        PRIMARY KEY,
  seq              bigint      NOT NULL,
  caller           bigint,
  run_hash         bigint,
  created_at       timestamptz NOT NULL,
  lease_until      timestamptz,
  timeout_at       timestamptz,
  generation       integer     NOT NULL CHECK (generation >= 1),
  signature        bytea       CHECK (octet_length(signature) = 32),
  window_signature bytea       CHECK (octet_length(window_signature) = 32),
  args_digest      bytea       NOT NULL CHECK (octet_length(args_digest) = 32),
  complete         bytea       NOT NULL CHECK (octet_length(complete) = 32),
  tenant           text        NOT NULL CHECK (tenant <> ''),
  principal        text        NOT NULL,
  session          text        NOT NULL,
  trace            text        NOT NULL,
  server           text        NOT NULL,
  tool             text        NOT NULL,
  tier             undolog.tier NOT NULL,
  rule             undolog.rule NOT NULL,
  scope            text        NOT NULL,
  key              text        NOT NULL,
  run              text        NOT NULL,
  occurrence       text        NOT NULL,
  policy           text        NOT NULL,
  source           text        NOT NULL,
  lookalike_of     text        NOT NULL,
  state            undolog.state NOT NULL CHECK (state IN ('claimed', 'awaiting_approval')),
  owner            text        NOT NULL,
  arguments        bytea       NOT NULL,
  -- Reads and calls of nobody are recorded, and match nothing.
  CHECK ((signature IS NULL) = (tier = 'read' OR rule = 'none')),
  CHECK ((caller IS NULL) = (tier = 'read')),
  CHECK ((run_hash IS NULL) = (run = '')),
  -- The claim: of any number of writers one inserts a generation. The tenant is part of the signature.
  UNIQUE (signature, generation)
);

-- Listing and following one tenant's effects.
CREATE INDEX effect_order ON undolog.effect (tenant, seq);

-- "Has this caller begun another write on that server since?"
CREATE INDEX effect_writes ON undolog.effect (caller, seq) WHERE caller IS NOT NULL;

-- Equal calls under another key or run.
CREATE INDEX effect_lookalikes ON undolog.effect (window_signature, seq) WHERE rule IN ('key', 'run');

CREATE INDEX effect_runs ON undolog.effect (run_hash, seq) WHERE run_hash IS NOT NULL;

-- position and caller are set where a new attempt is claimed: its place among all that was begun. begun
-- names the Begin that made a claim, so that it knows its own when its commit was not answered. There is no
-- foreign key: checking it would lock, and so write, the effect's row with every move; who inserts has
-- read the row, and effects are never deleted. answer becomes empty when it is pruned.
CREATE TABLE undolog.transition (
  effect       uuid        NOT NULL,
  ordinal      integer     NOT NULL CHECK (ordinal >= 1),
  attempt      integer     NOT NULL CHECK (attempt >= 1),
  at           timestamptz NOT NULL,
  lease_until  timestamptz,
  timeout_at   timestamptz,
  position     bigint      CHECK (position IS NULL OR state = 'claimed'),
  caller       bigint      CHECK ((caller IS NULL) = (position IS NULL)),
  begun        uuid,
  is_error     boolean     NOT NULL,
  tenant       text        NOT NULL CHECK (tenant <> ''),
  state        undolog.state NOT NULL,
  owner        text        NOT NULL,
  by           text        NOT NULL,
  reason       text        NOT NULL,
  continuation text        NOT NULL,
  answer_kind  text        NOT NULL CHECK (answer_kind IN ('', 'result', 'error')),
  answer       bytea,
  CHECK ((answer IS NULL) = (answer_kind = '')),
  PRIMARY KEY (effect, ordinal)
);

CREATE INDEX transition_claims ON undolog.transition (caller, position) WHERE position IS NOT NULL;

-- When the answer last reached its agent; evidence for the attempts that were settled before.
CREATE TABLE undolog.delivery (
  effect uuid        PRIMARY KEY,
  at     timestamptz NOT NULL,
  tenant text        NOT NULL CHECK (tenant <> '')
);

-- What is worth telling and moves no state. id makes telling it twice the same as once. A granted run is
-- open while the newest of 'again' and 'again_used' is 'again'; used is the grant that an again_used uses.
CREATE TABLE undolog.event (
  id        uuid        PRIMARY KEY,
  seq       bigint      NOT NULL,
  at        timestamptz NOT NULL,
  used      uuid,
  tenant    text        NOT NULL CHECK (tenant <> ''),
  effect    text        NOT NULL,
  kind      text        NOT NULL CHECK (kind <> ''),
  principal text        NOT NULL,
  server    text        NOT NULL,
  tool      text        NOT NULL,
  detail    bytea,
  CHECK ((used IS NOT NULL) = (kind = 'again_used'))
);

CREATE INDEX event_order ON undolog.event (tenant, seq);
CREATE INDEX event_effect ON undolog.event (effect, seq) WHERE effect <> '';

-- One run for each grant.
CREATE UNIQUE INDEX event_used ON undolog.event (used) WHERE used IS NOT NULL;

-- Each call that may be a replay asks it, and each replay is an event.
CREATE INDEX event_again ON undolog.event (effect, seq) WHERE kind IN ('again', 'again_used');

-- Every definition of a tool that was seen, the newest last. name_hash is of server and name, which are of
-- any length; of two who learn one version at once, one inserts it.
CREATE TABLE undolog.tool (
  tenant     text        NOT NULL CHECK (tenant <> ''),
  name_hash  bytea       NOT NULL CHECK (octet_length(name_hash) = 32),
  version    integer     NOT NULL CHECK (version >= 1),
  server     text        NOT NULL,
  name       text        NOT NULL,
  digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
  definition bytea       NOT NULL,
  seen_at    timestamptz NOT NULL,
  PRIMARY KEY (tenant, name_hash, version)
);

-- A log is not edited. What is pruned is a payload, and only ever taken away.
-- +goose StatementBegin
CREATE FUNCTION undolog.effect_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  OLD.arguments := '';
  IF NEW IS DISTINCT FROM OLD THEN
    RAISE EXCEPTION 'effects are never updated';
  END IF;
  RETURN NEW;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION undolog.transition_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  OLD.answer := CASE WHEN OLD.answer IS NOT NULL THEN ''::bytea END;
  IF NEW IS DISTINCT FROM OLD THEN
    RAISE EXCEPTION 'transitions are never updated';
  END IF;
  RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER effect_is_final BEFORE UPDATE ON undolog.effect
  FOR EACH ROW EXECUTE FUNCTION undolog.effect_is_final();
CREATE TRIGGER transition_is_final BEFORE UPDATE ON undolog.transition
  FOR EACH ROW EXECUTE FUNCTION undolog.transition_is_final();

ALTER TABLE undolog.effect ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.transition ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.delivery ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.event ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.tool ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON undolog.effect USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.transition USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.delivery USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.event USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.tool USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
