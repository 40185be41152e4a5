-- The server reads the text of a table's CHECKs anew in each statement that writes to it: for the two tables
-- of the hot path that was a quarter of what a claim costs, and a third of a settle. A trigger's function is
-- read once a session and says the same, which what was written before already obeys.
--
-- Locks: each of the two tables for a moment, and no scan. Replicas of the version before go on beside it.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
  c record;
BEGIN
  FOR c IN
    SELECT conrelid::regclass AS of, conname AS name
    FROM pg_constraint
    WHERE contype = 'c' AND conrelid IN ('undolog.effect'::regclass, 'undolog.transition'::regclass)
  LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.of, c.name);
  END LOOP;
END
$$;
-- +goose StatementEnd

-- Reads and calls of nobody have no signature: they are recorded, and match nothing.
-- +goose StatementBegin
CREATE FUNCTION undolog.effect_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.tenant <> ''
    AND NEW.generation >= 1
    AND NEW.state IN ('claimed', 'awaiting_approval')
    AND octet_length(NEW.args_digest) = 32
    AND octet_length(NEW.complete) = 32
    AND (NEW.signature IS NULL OR octet_length(NEW.signature) = 32)
    AND (NEW.window_signature IS NULL OR octet_length(NEW.window_signature) = 32)
    AND (NEW.signature IS NULL) = (NEW.tier = 'read' OR NEW.rule = 'none')
    AND (NEW.caller IS NULL) = (NEW.tier = 'read')
    AND (NEW.run_hash IS NULL) = (NEW.run = '')
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'effect % is none that the log can hold', NEW.id USING ERRCODE = 'check_violation';
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION undolog.transition_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.tenant <> ''
    AND NEW.ordinal >= 1
    AND NEW.attempt >= 1
    AND NEW.answer_kind IN ('', 'result', 'error')
    AND (NEW.answer IS NULL) = (NEW.answer_kind = '')
    AND (NEW.position IS NULL OR NEW.state = 'claimed')
    AND (NEW.caller IS NULL) = (NEW.position IS NULL)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'move % of effect % is none that the log can hold', NEW.ordinal, NEW.effect USING ERRCODE = 'check_violation';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER effect_is_sound BEFORE INSERT ON undolog.effect
  FOR EACH ROW EXECUTE FUNCTION undolog.effect_is_sound();
CREATE TRIGGER transition_is_sound BEFORE INSERT ON undolog.transition
  FOR EACH ROW EXECUTE FUNCTION undolog.transition_is_sound();
