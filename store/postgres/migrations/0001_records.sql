-- One row for each (tenant, actor, operation, key), for as long as the key is
-- known. Its only indexes are over columns that no routine transition changes,
-- so that an update stays on its page (HOT): see docs/decisions/three-tables.md.
CREATE TABLE idempotency_records (
	tenant                text        COLLATE "C" NOT NULL,
	actor                 text        COLLATE "C" NOT NULL,
	operation             text        COLLATE "C" NOT NULL,
	key                   text        COLLATE "C" NOT NULL,
	state                 text        COLLATE "C" NOT NULL,
	claim_token           uuid        NOT NULL,
	fingerprint_algorithm smallint    NOT NULL,
	fingerprint_version   text        COLLATE "C" NOT NULL,
	fingerprint           bytea       NOT NULL,
	fingerprint_members   bytea,
	claimed_at            timestamptz NOT NULL,
	lease_until           timestamptz NOT NULL,
	settled_at            timestamptz,
	unknown_since         timestamptz,
	replay_until          timestamptz,
	keep_until            timestamptz,
	status                smallint,
	resource              text,
	reason                text,
	response_header       bytea,
	response_body         bytea,
	PRIMARY KEY (tenant, actor, operation, key)
) WITH (fillfactor = 50);

-- Unknown outcomes are few, and this column stays NULL on the routine way from
-- executing to completed: the index is tiny and costs that way nothing.
CREATE INDEX idempotency_records_unknown ON idempotency_records (unknown_since)
	WHERE unknown_since IS NOT NULL;

-- What time will do next, and to which record. A row is made with the claim and
-- moved on by the sweeper, not by the request that completes the record. It is a
-- hint: what happens is decided by the record, under its own guard.
CREATE TABLE idempotency_due (
	awaits      text        COLLATE "C" NOT NULL, -- lease, window or tombstone
	due_at      timestamptz NOT NULL,
	tenant      text        COLLATE "C" NOT NULL,
	actor       text        COLLATE "C" NOT NULL,
	operation   text        COLLATE "C" NOT NULL,
	key         text        COLLATE "C" NOT NULL,
	claim_token uuid        NOT NULL
);

CREATE INDEX idempotency_due_awaits ON idempotency_due (awaits, due_at);
