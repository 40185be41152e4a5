-- What must be true of a row is said by its table's policy, which is bound to its owner too. A policy is part of a
-- statement's plan, where the triggers of 0002 had their expressions made ready anew in each transaction: a sixth of
-- what a claim cost, and a fifth of a settle. What was written before obeys already.
--
-- The trigger that is left is for the few moves that leave their effect open, which it puts on the account of what is
-- open; it is asked for no others.
--
-- Locks: each of the two tables for a moment, and no scan. Replicas of the versions before go on beside it: they write
-- what they wrote, and their open moves go on the account.

-- +goose Up

ALTER POLICY own_tenant ON undolog.effect WITH CHECK (
  tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true)
  AND tenant <> ''
  AND generation >= 1
  AND state IN ('claimed', 'awaiting_approval')
  AND octet_length(args_digest) = 32
  AND octet_length(complete) = 32
  AND (signature IS NULL OR octet_length(signature) = 32)
  AND (window_signature IS NULL OR octet_length(window_signature) = 32)
  AND (signature IS NULL) = (tier = 'read' OR rule = 'none')
  AND (caller IS NULL) = (tier = 'read' OR state = 'awaiting_approval')
  AND (run_hash IS NULL) = (run = ''));

ALTER POLICY own_tenant ON undolog.transition WITH CHECK (
  tenant IS NOT DISTINCT FROM current_setting('undolog.tenant', true)
  AND tenant <> ''
  AND ordinal >= 1
  AND attempt >= 1
  AND answer_kind IN ('', 'result', 'error')
  AND (answer IS NULL) = (answer_kind = '')
  AND (position IS NULL OR state = 'claimed')
  AND (caller IS NULL) = (position IS NULL));

-- +goose StatementBegin
CREATE FUNCTION undolog.transition_is_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM undolog.note_open(NEW.tenant, NEW.effect, NEW.ordinal);
  RETURN NEW;
END
$$;
-- +goose StatementEnd
DROP TRIGGER effect_is_sound ON undolog.effect;
DROP FUNCTION undolog.effect_is_sound();
DROP TRIGGER transition_is_sound ON undolog.transition;
DROP FUNCTION undolog.transition_is_sound();
CREATE TRIGGER transition_is_open BEFORE INSERT ON undolog.transition
  FOR EACH ROW WHEN (NEW.state IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval'))
  EXECUTE FUNCTION undolog.transition_is_open();
