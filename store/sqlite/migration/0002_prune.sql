-- Payloads may be taken away: set to the empty blob, which no JSON is. Everything else of a row stays as it
-- was inserted.

-- +goose Up

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
  NEW.lease_until IS OLD.lease_until AND NEW.timeout_at IS OLD.timeout_at AND NEW.arguments IS x'')
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
  NEW.is_error IS OLD.is_error AND OLD.answer IS NOT NULL AND NEW.answer IS x'')
BEGIN
  SELECT RAISE(ABORT, 'transitions are never updated');
END;
-- +goose StatementEnd
