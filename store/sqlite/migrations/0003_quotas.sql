-- What quotas are counted by: how many keys were new in a window.
CREATE TABLE idempotency_quotas (
	tenant     TEXT    NOT NULL,
	operation  TEXT    NOT NULL,
	actor      TEXT    NOT NULL, -- '' for the whole tenant
	period     INTEGER NOT NULL, -- length of the window in milliseconds
	window_end INTEGER NOT NULL,
	used       INTEGER NOT NULL,
	PRIMARY KEY (tenant, operation, actor, period)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_quotas_over ON idempotency_quotas (window_end);

-- Who may be executing. A slot is believed only while its record is executing and
-- has its token, so that no transition out of executing has to touch it.
CREATE TABLE idempotency_slots (
	tenant      TEXT    NOT NULL,
	operation   TEXT    NOT NULL,
	actor       TEXT    NOT NULL,
	key         TEXT    NOT NULL,
	claim_token BLOB    NOT NULL,
	lease_until INTEGER NOT NULL,
	PRIMARY KEY (tenant, operation, actor, key, claim_token)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_slots_lease ON idempotency_slots (lease_until);
