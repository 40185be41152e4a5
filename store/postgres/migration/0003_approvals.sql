-- Approvals, standing grants and limits. The tables that hold calls stay as they are: what concerns the few calls
-- that a person is asked about is beside them, so that the others cost no more than before.
--
-- Locks: none of those tables is scanned; writers of moves wait for a moment, while functions are replaced. Replicas of the version before go on: what
-- they move keeps its approval, they hold back what awaits one, and they ask nobody themselves.

-- +goose Up

-- The request for approval, and what has been decided on it, as a move of its effect leaves it: one row for each
-- move that asks, decides or ends a request. The newest is the effect's, while it is at that attempt. document is one of JSON; the
-- arguments that a person put in the place of the call's are kept beside it as they came, and become empty, which
-- no JSON is, when they are pruned. until and approved are the document's, where the move leaves the effect
-- awaiting: past that time it is void, or expired when it is not approved. append names the Append that made a
-- decision, so that it knows its own when its commit was not answered.
CREATE TABLE undolog.approval (
  effect   uuid        NOT NULL,
  ordinal  integer     NOT NULL CHECK (ordinal >= 0),
  attempt  integer     NOT NULL CHECK (attempt >= 1),
  append   uuid,
  until    timestamptz,
  approved boolean     NOT NULL CHECK (NOT approved OR until IS NOT NULL),
  tenant   text        NOT NULL CHECK (tenant <> ''),
  document bytea       NOT NULL,
  edited   bytea,
  PRIMARY KEY (effect, ordinal)
);

-- What awaits approval now is among what is not over.
CREATE INDEX approval_open ON undolog.approval (tenant, until) WHERE until IS NOT NULL;

-- name_hash is of server and tool, which are of any length, as in undolog.tool.
CREATE TABLE undolog.standing_grant (
  id         uuid        PRIMARY KEY,
  seq        bigint      NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  tenant     text        NOT NULL CHECK (tenant <> ''),
  name_hash  bytea       NOT NULL CHECK (octet_length(name_hash) = 32),
  kind       text        NOT NULL CHECK (kind IN ('exact', 'where', 'tool')),
  server     text        NOT NULL CHECK (server <> ''),
  tool       text        NOT NULL CHECK (tool <> ''),
  principal  text        NOT NULL,
  complete   bytea       CHECK (octet_length(complete) = 32),
  condition  text        NOT NULL,
  definition bytea       CHECK (octet_length(definition) = 32),
  by         text        NOT NULL CHECK (by <> ''),
  reason     text        NOT NULL,
  CHECK (kind <> 'exact' OR complete IS NOT NULL)
);

CREATE INDEX standing_grant_tool ON undolog.standing_grant (tenant, name_hash, seq);
CREATE INDEX standing_grant_order ON undolog.standing_grant (tenant, seq);

CREATE TABLE undolog.revocation (
  standing_grant uuid        PRIMARY KEY,
  at             timestamptz NOT NULL,
  tenant         text        NOT NULL CHECK (tenant <> ''),
  by             text        NOT NULL CHECK (by <> ''),
  reason         text        NOT NULL
);

-- What the last claim of an effect took from a limit, in millionths of a unit; whether it counts is the effect's
-- state to say, until counted says that it does for ever. account is a hash of tenant, limit and subject, which
-- are of any length. Who writes holds the account's advisory lock from before it adds up what was spent until it
-- commits.
CREATE TABLE undolog.spend (
  account    bytea       NOT NULL CHECK (octet_length(account) = 32),
  effect     uuid        NOT NULL,
  at         timestamptz NOT NULL,
  units      bigint      NOT NULL CHECK (units >= 0),
  counted    boolean     NOT NULL DEFAULT false,
  tenant     text        NOT NULL CHECK (tenant <> ''),
  limit_name text        NOT NULL,
  subject    text        NOT NULL,
  PRIMARY KEY (account, effect)
);

CREATE INDEX spend_counted ON undolog.spend (account, at) INCLUDE (units, tenant) WHERE counted;
CREATE INDEX spend_uncounted ON undolog.spend (account, at) WHERE NOT counted;

-- What is open, so that it is listed without reading all that is settled. A row says that this move left its
-- effect open; any later move makes it obsolete. Of every effect that is open its last move has one, unless the
-- effect lies beyond its tenant's mark. Who lists what is open moves the mark. The function has its owner's rights,
-- so that replicas of the version before, which have none here, keep the account too.
CREATE TABLE undolog.open_move (
  tenant  text    NOT NULL CHECK (tenant <> ''),
  effect  uuid    NOT NULL,
  ordinal integer NOT NULL,
  PRIMARY KEY (tenant, effect, ordinal)
);

CREATE TABLE undolog.mark (
  tenant text   PRIMARY KEY CHECK (tenant <> ''),
  seq    bigint NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION undolog.note_open(tenant text, effect uuid, ordinal integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
  INSERT INTO undolog.open_move (tenant, effect, ordinal) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
$$;
-- +goose StatementEnd

-- No move is under way whose writer has not seen the new function.
LOCK TABLE undolog.transition IN SHARE ROW EXCLUSIVE MODE;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION undolog.transition_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.tenant <> ''
    AND NEW.ordinal >= 1
    AND NEW.attempt >= 1
    AND NEW.answer_kind IN ('', 'result', 'error')
    AND (NEW.answer IS NULL) = (NEW.answer_kind = '')
    AND (NEW.position IS NULL OR NEW.state = 'claimed')
    AND (NEW.caller IS NULL) = (NEW.position IS NULL)
  THEN
    IF NEW.state IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval') THEN
      PERFORM undolog.note_open(NEW.tenant, NEW.effect, NEW.ordinal);
    END IF;
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'move % of effect % is none that the log can hold', NEW.ordinal, NEW.effect USING ERRCODE = 'check_violation';
END
$$;
-- +goose StatementEnd

-- What only awaited approval was no write of its caller's: it has none until it is claimed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION undolog.effect_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.tenant <> ''
    AND NEW.generation >= 1
    AND NEW.state IN ('claimed', 'awaiting_approval')
    AND octet_length(NEW.args_digest) = 32
    AND octet_length(NEW.complete) = 32
    AND (NEW.signature IS NULL OR octet_length(NEW.signature) = 32)
    AND (NEW.window_signature IS NULL OR octet_length(NEW.window_signature) = 32)
    AND (NEW.signature IS NULL) = (NEW.tier = 'read' OR NEW.rule = 'none')
    AND (NEW.caller IS NULL) = (NEW.tier = 'read' OR NEW.state = 'awaiting_approval')
    AND (NEW.run_hash IS NULL) = (NEW.run = '')
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'effect % is none that the log can hold', NEW.id USING ERRCODE = 'check_violation';
END
$$;
-- +goose StatementEnd

-- A log is not edited. What is pruned is a payload, and only ever taken away.
-- +goose StatementBegin
CREATE FUNCTION undolog.approval_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  OLD.edited := CASE WHEN OLD.edited IS NOT NULL THEN ''::bytea END;
  IF NEW IS DISTINCT FROM OLD THEN
    RAISE EXCEPTION 'approvals are never updated';
  END IF;
  RETURN NEW;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION undolog.row_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never updated', TG_TABLE_NAME;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER approval_is_final BEFORE UPDATE ON undolog.approval
  FOR EACH ROW EXECUTE FUNCTION undolog.approval_is_final();
CREATE TRIGGER standing_grant_is_final BEFORE UPDATE ON undolog.standing_grant
  FOR EACH ROW EXECUTE FUNCTION undolog.row_is_final();
CREATE TRIGGER revocation_is_final BEFORE UPDATE ON undolog.revocation
  FOR EACH ROW EXECUTE FUNCTION undolog.row_is_final();

ALTER TABLE undolog.approval ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.standing_grant ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.revocation ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.spend ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.open_move ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE undolog.mark ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON undolog.approval USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.standing_grant USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.revocation USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.spend USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.open_move USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
CREATE POLICY own_tenant ON undolog.mark USING (tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true));
