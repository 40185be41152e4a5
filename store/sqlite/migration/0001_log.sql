-- The effect log. Rows are inserted and not updated: an effect's first row is its first claim, and every
-- later move is a row of its own, whose place (effect, ordinal) is the compare-and-set. Whoever inserts
-- the next ordinal has moved the effect; everybody else is told where it stands.
--
-- Migrating needs the file for itself: the program takes SQLite's exclusive lock, so that an older
-- program that still runs is never left with a schema that it does not know.
--
-- Times are microseconds since 1970 in UTC. Payloads are BLOB: bytes as they came, never parsed here.

-- +goose Up

-- seq is the order of recording. Without AUTOINCREMENT it costs no second table on the hot path; rows are
-- never deleted from the end, so that it is never given twice.
CREATE TABLE effect (
  seq          INTEGER PRIMARY KEY,
  id           TEXT    NOT NULL UNIQUE,
  tenant       TEXT    NOT NULL CHECK (tenant <> ''),
  principal    TEXT    NOT NULL,
  session      TEXT    NOT NULL,
  trace        TEXT    NOT NULL,
  server       TEXT    NOT NULL,
  tool         TEXT    NOT NULL,
  tier         TEXT    NOT NULL CHECK (tier IN ('read', 'idempotent', 'compensable', 'irreversible')),
  rule         TEXT    NOT NULL CHECK (rule IN ('key', 'run', 'window', 'none')),
  scope        TEXT    NOT NULL,
  signature    BLOB    CHECK (length(signature) = 32),
  window       BLOB    CHECK (length(window) = 32),
  generation   INTEGER NOT NULL CHECK (generation >= 1),
  key          TEXT    NOT NULL,
  run          TEXT    NOT NULL,
  occurrence   TEXT    NOT NULL,
  args_digest  BLOB    NOT NULL CHECK (length(args_digest) = 32),
  complete     BLOB    NOT NULL CHECK (length(complete) = 32),
  policy       TEXT    NOT NULL,
  source       TEXT    NOT NULL,
  lookalike_of TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  -- The first transition, ordinal 0 and attempt 1, is part of the row: a whole call is two rows.
  state        TEXT    NOT NULL CHECK (state IN ('claimed', 'awaiting_approval')),
  owner        TEXT    NOT NULL,
  lease_until  INTEGER,
  timeout_at   INTEGER,
  arguments    BLOB    NOT NULL,
  -- Reads and calls of nobody are recorded, and match nothing.
  CHECK ((signature IS NULL) = (tier = 'read' OR rule = 'none')),
  -- The claim: of any number of writers one inserts a generation.
  UNIQUE (tenant, signature, generation)
);

-- "Has this caller begun another write on that server since?"
CREATE INDEX effect_writes ON effect (tenant, principal, server, seq) WHERE tier <> 'read';

-- Equal calls under another key or run.
CREATE INDEX effect_lookalikes ON effect (tenant, window, seq) WHERE rule IN ('key', 'run');

CREATE INDEX effect_runs ON effect (tenant, run, seq) WHERE run <> '';

-- position is set where a new attempt is claimed: the newest effect of that moment, so that attempts and
-- first claims share one order.
CREATE TABLE transition (
  effect       INTEGER NOT NULL REFERENCES effect (seq),
  ordinal      INTEGER NOT NULL CHECK (ordinal >= 1),
  attempt      INTEGER NOT NULL CHECK (attempt >= 1),
  state        TEXT    NOT NULL CHECK (state IN ('awaiting_approval', 'claimed', 'waiting', 'committed',
                 'failed', 'released', 'in_doubt', 'denied', 'expired', 'void', 'compensating',
                 'compensated', 'compensation_failed')),
  at           INTEGER NOT NULL,
  owner        TEXT    NOT NULL,
  lease_until  INTEGER,
  timeout_at   INTEGER,
  position     INTEGER CHECK (position IS NULL OR state = 'claimed'),
  by           TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  continuation TEXT    NOT NULL,
  answer_kind  TEXT    NOT NULL CHECK (answer_kind IN ('', 'result', 'error')),
  is_error     INTEGER NOT NULL CHECK (is_error IN (0, 1)),
  answer       BLOB,
  CHECK ((answer IS NULL) = (answer_kind = '')),
  PRIMARY KEY (effect, ordinal)
);

CREATE INDEX transition_claims ON transition (position) WHERE position IS NOT NULL;

-- A log is not edited.
-- +goose StatementBegin
CREATE TRIGGER effect_is_final BEFORE UPDATE ON effect BEGIN
  SELECT RAISE(ABORT, 'effects are never updated');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER transition_is_final BEFORE UPDATE ON transition BEGIN
  SELECT RAISE(ABORT, 'transitions are never updated');
END;
-- +goose StatementEnd

-- When the answer last reached its agent; evidence for the attempts that were settled before.
CREATE TABLE delivery (
  effect INTEGER PRIMARY KEY REFERENCES effect (seq),
  at     INTEGER NOT NULL
);

-- One heartbeat a process. A claim whose owner has no row, or an old one, is in doubt.
CREATE TABLE owner (
  id    TEXT PRIMARY KEY,
  until INTEGER NOT NULL
) WITHOUT ROWID;

-- What is worth telling and moves no state. A granted run is open while the newest of 'again' and
-- 'again_used' is 'again'.
CREATE TABLE event (
  seq       INTEGER PRIMARY KEY,
  at        INTEGER NOT NULL,
  tenant    TEXT    NOT NULL CHECK (tenant <> ''),
  effect    TEXT    NOT NULL,
  kind      TEXT    NOT NULL CHECK (kind <> ''),
  principal TEXT    NOT NULL,
  server    TEXT    NOT NULL,
  tool      TEXT    NOT NULL,
  detail    BLOB
);

CREATE INDEX event_tenant ON event (tenant, seq);
CREATE INDEX event_effect ON event (effect, seq) WHERE effect <> '';

-- Each call that may be a replay asks it, and each replay is an event.
CREATE INDEX event_again ON event (effect, seq) WHERE kind IN ('again', 'again_used');

-- Every definition of a tool that was seen, the newest last.
CREATE TABLE tool (
  seq        INTEGER PRIMARY KEY,
  tenant     TEXT    NOT NULL CHECK (tenant <> ''),
  server     TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),
  definition BLOB    NOT NULL,
  seen_at    INTEGER NOT NULL
);

CREATE INDEX tool_latest ON tool (tenant, server, name, seq);
