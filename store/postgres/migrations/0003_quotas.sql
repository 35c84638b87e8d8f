-- What quotas are counted by. A row of idempotency_quotas is also the lock of its
-- quota: every claim that it bounds holds the row until it commits.
CREATE TABLE idempotency_quotas (
	tenant     text        COLLATE "C" NOT NULL,
	operation  text        COLLATE "C" NOT NULL,
	actor      text        COLLATE "C" NOT NULL, -- '' for the whole tenant
	period     bigint      NOT NULL, -- length of the window in milliseconds; 0 for what is executing, a lock alone
	window_end timestamptz NOT NULL,
	used       bigint      NOT NULL,
	PRIMARY KEY (tenant, operation, actor, period)
) WITH (fillfactor = 50);

-- It changes once in a window; counting leaves it alone (HOT).
CREATE INDEX idempotency_quotas_over ON idempotency_quotas (window_end);

-- Who may be executing. A slot is believed only while its record is executing and
-- has its token, so that no transition out of executing has to touch it. A slot
-- never changes: a key that is claimed again gets another.
CREATE TABLE idempotency_slots (
	tenant      text        COLLATE "C" NOT NULL,
	operation   text        COLLATE "C" NOT NULL,
	actor       text        COLLATE "C" NOT NULL,
	key         text        COLLATE "C" NOT NULL,
	claim_token uuid        NOT NULL,
	lease_until timestamptz NOT NULL,
	PRIMARY KEY (tenant, operation, actor, key, claim_token)
);

CREATE INDEX idempotency_slots_lease ON idempotency_slots (lease_until);
