-- Approvals, standing grants, limits, and an account of what is open. Files of before keep their rows as they
-- are: nothing in them was ever asked about.

-- +goose Up

-- The request for approval, and what has been decided on it, as the move leaves it: one JSON document, carried
-- by every later move of the effect, so that the last one has it. Arguments that a person changed are kept
-- beside it, byte for byte, and may be taken away like those of the effect. The clocks are also columns while
-- the effect waits, since it is expired or void by them before anybody writes so.
ALTER TABLE effect ADD COLUMN approval BLOB;
ALTER TABLE effect ADD COLUMN decide_until INTEGER
  CHECK ((decide_until IS NOT NULL) = (state = 'awaiting_approval') AND (decide_until IS NULL OR approval IS NOT NULL));

ALTER TABLE transition ADD COLUMN approval BLOB;
ALTER TABLE transition ADD COLUMN edited BLOB CHECK (edited IS NULL OR approval IS NOT NULL);
ALTER TABLE transition ADD COLUMN decide_until INTEGER
  CHECK ((decide_until IS NOT NULL) = (state = 'awaiting_approval') AND (decide_until IS NULL OR approval IS NOT NULL));
ALTER TABLE transition ADD COLUMN use_until INTEGER CHECK (use_until IS NULL OR decide_until IS NOT NULL);

DROP TRIGGER effect_is_final;
-- +goose StatementBegin
CREATE TRIGGER effect_is_final BEFORE UPDATE ON effect
WHEN NOT (
  NEW.seq IS OLD.seq AND NEW.id IS OLD.id AND NEW.tenant IS OLD.tenant AND NEW.principal IS OLD.principal AND
  NEW.session IS OLD.session AND NEW.trace IS OLD.trace AND NEW.server IS OLD.server AND NEW.tool IS OLD.tool AND
  NEW.tier IS OLD.tier AND NEW.rule IS OLD.rule AND NEW.scope IS OLD.scope AND NEW.signature IS OLD.signature AND
  NEW.window IS OLD.window AND NEW.generation IS OLD.generation AND NEW.key IS OLD.key AND NEW.run IS OLD.run AND
  NEW.occurrence IS OLD.occurrence AND NEW.args_digest IS OLD.args_digest AND NEW.complete IS OLD.complete AND
  NEW.policy IS OLD.policy AND NEW.source IS OLD.source AND NEW.lookalike_of IS OLD.lookalike_of AND
  NEW.created_at IS OLD.created_at AND NEW.state IS OLD.state AND NEW.owner IS OLD.owner AND
  NEW.lease_until IS OLD.lease_until AND NEW.timeout_at IS OLD.timeout_at AND NEW.approval IS OLD.approval AND
  NEW.decide_until IS OLD.decide_until AND NEW.arguments IS x'')
BEGIN
  SELECT RAISE(ABORT, 'effects are never updated');
END;
-- +goose StatementEnd

DROP TRIGGER transition_is_final;
-- +goose StatementBegin
CREATE TRIGGER transition_is_final BEFORE UPDATE ON transition
WHEN NOT (
  NEW.effect IS OLD.effect AND NEW.ordinal IS OLD.ordinal AND NEW.attempt IS OLD.attempt AND NEW.state IS OLD.state AND
  NEW.at IS OLD.at AND NEW.owner IS OLD.owner AND NEW.lease_until IS OLD.lease_until AND
  NEW.timeout_at IS OLD.timeout_at AND NEW.position IS OLD.position AND NEW.by IS OLD.by AND
  NEW.reason IS OLD.reason AND NEW.continuation IS OLD.continuation AND NEW.answer_kind IS OLD.answer_kind AND
  NEW.is_error IS OLD.is_error AND NEW.approval IS OLD.approval AND NEW.decide_until IS OLD.decide_until AND
  NEW.use_until IS OLD.use_until AND
  (NEW.answer IS OLD.answer OR OLD.answer IS NOT NULL AND NEW.answer IS x'') AND
  (NEW.edited IS OLD.edited OR OLD.edited IS NOT NULL AND NEW.edited IS x''))
BEGIN
  SELECT RAISE(ABORT, 'transitions are never updated');
END;
-- +goose StatementEnd

-- A grant is a row, and its end by a person another.
CREATE TABLE standing_grant (
  seq        INTEGER PRIMARY KEY,
  id         TEXT    NOT NULL UNIQUE,
  tenant     TEXT    NOT NULL CHECK (tenant <> ''),
  kind       TEXT    NOT NULL CHECK (kind IN ('exact', 'where', 'tool')),
  server     TEXT    NOT NULL CHECK (server <> ''),
  tool       TEXT    NOT NULL CHECK (tool <> ''),
  principal  TEXT    NOT NULL,
  complete   BLOB    CHECK (length(complete) = 32),
  condition  TEXT    NOT NULL,
  definition BLOB    CHECK (length(definition) = 32),
  by         TEXT    NOT NULL CHECK (by <> ''),
  reason     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  CHECK ((complete IS NOT NULL) = (kind = 'exact'))
);

CREATE INDEX standing_grant_tool ON standing_grant (tenant, server, tool, seq);

CREATE TABLE revocation (
  standing_grant INTEGER PRIMARY KEY REFERENCES standing_grant (seq),
  at             INTEGER NOT NULL,
  by             TEXT    NOT NULL CHECK (by <> ''),
  reason         TEXT    NOT NULL
);

-- +goose StatementBegin
CREATE TRIGGER standing_grant_is_final BEFORE UPDATE ON standing_grant BEGIN
  SELECT RAISE(ABORT, 'grants are never updated');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER revocation_is_final BEFORE UPDATE ON revocation BEGIN
  SELECT RAISE(ABORT, 'revocations are never updated');
END;
-- +goose StatementEnd

-- What the last claim of an effect took from a limit, in millionths of a unit. Whether it counts is the
-- effect's state to say.
CREATE TABLE spend (
  effect     INTEGER NOT NULL REFERENCES effect (seq),
  tenant     TEXT    NOT NULL,
  limit_name TEXT    NOT NULL,
  subject    TEXT    NOT NULL,
  units      INTEGER NOT NULL CHECK (units >= 0),
  at         INTEGER NOT NULL,
  PRIMARY KEY (effect, limit_name, subject)
) WITHOUT ROWID;

CREATE INDEX spend_account ON spend (tenant, limit_name, subject, at, units);

-- To list what is open without reading all that is settled. Every effect that is open is newer than the mark
-- or has a row here; a row may be left of one that is settled meanwhile.
CREATE TABLE open_effect (
  effect INTEGER PRIMARY KEY REFERENCES effect (seq)
);

CREATE TABLE mark (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seq INTEGER NOT NULL
);

INSERT INTO mark SELECT 1, COALESCE(MAX(seq), 0) FROM effect;

INSERT INTO open_effect
SELECT e.seq
FROM effect e
WHERE COALESCE((SELECT state FROM transition WHERE effect = e.seq ORDER BY ordinal DESC LIMIT 1), e.state)
      IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval');
