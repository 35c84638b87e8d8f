-- The ways out of an unknown outcome: who is verifying it and when it is due, the
-- business identity that arbitrates across keys, and an audit of what was decided.
ALTER TABLE idempotency_records ADD COLUMN natural_key   TEXT;
ALTER TABLE idempotency_records ADD COLUMN verify_at     INTEGER; -- due from then on; NULL unless unknown
ALTER TABLE idempotency_records ADD COLUMN probing_until INTEGER; -- somebody is verifying it until then
ALTER TABLE idempotency_records ADD COLUMN verifications INTEGER;

-- It never changes after the claim, and lives as long as the record.
CREATE UNIQUE INDEX idempotency_records_natural ON idempotency_records (tenant, operation, natural_key)
	WHERE natural_key IS NOT NULL;

CREATE INDEX idempotency_records_verify ON idempotency_records (verify_at)
	WHERE verify_at IS NOT NULL;

UPDATE idempotency_records SET verify_at = unknown_since WHERE state = 'unknown';

CREATE TABLE idempotency_audit (
	id         INTEGER NOT NULL PRIMARY KEY,
	at         INTEGER NOT NULL,
	decision   BLOB    NOT NULL, -- as its maker named it, to find it again
	decided_by TEXT    NOT NULL,
	reason     TEXT    NOT NULL,
	tenant     TEXT    NOT NULL,
	actor      TEXT    NOT NULL,
	operation  TEXT    NOT NULL,
	key        TEXT    NOT NULL,
	from_state TEXT    NOT NULL,
	to_state   TEXT    NOT NULL, -- '' if the record was released
	status     INTEGER
) STRICT;

CREATE INDEX idempotency_audit_record ON idempotency_audit (tenant, actor, operation, key);
