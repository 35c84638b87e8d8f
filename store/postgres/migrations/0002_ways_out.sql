-- The ways out of an unknown outcome: who is verifying it and when it is due, the
-- business identity that arbitrates across keys, and an audit of what was decided.
ALTER TABLE idempotency_records
	ADD COLUMN natural_key   text COLLATE "C",
	ADD COLUMN verify_at     timestamptz, -- due from then on; NULL unless unknown
	ADD COLUMN probing_until timestamptz, -- somebody is verifying it until then
	ADD COLUMN verifications integer;

-- It never changes after the claim, and lives as long as the record.
CREATE UNIQUE INDEX idempotency_records_natural ON idempotency_records (tenant, operation, natural_key)
	WHERE natural_key IS NOT NULL;

-- As the index of unknown_since: NULL on the routine way.
CREATE INDEX idempotency_records_verify ON idempotency_records (verify_at)
	WHERE verify_at IS NOT NULL;

UPDATE idempotency_records SET verify_at = now() WHERE unknown_since IS NOT NULL;

CREATE TABLE idempotency_audit (
	id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at         timestamptz NOT NULL DEFAULT now(),
	decision   uuid        NOT NULL, -- as its maker named it, to find it again
	decided_by text        NOT NULL,
	reason     text        NOT NULL,
	tenant     text        COLLATE "C" NOT NULL,
	actor      text        COLLATE "C" NOT NULL,
	operation  text        COLLATE "C" NOT NULL,
	key        text        COLLATE "C" NOT NULL,
	from_state text        NOT NULL,
	to_state   text        NOT NULL, -- '' if the record was released
	status     smallint
);

CREATE INDEX idempotency_audit_record ON idempotency_audit (tenant, actor, operation, key);
