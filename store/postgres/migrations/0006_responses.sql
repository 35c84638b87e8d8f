-- Responses have a table of their own: a record keeps its size when it is completed,
-- so that it stays on its page (HOT) without half of each page kept free for it.
-- Tokens come in order of time, and so do the entries of this index.
CREATE TABLE idempotency_responses (
	claim_token uuid  NOT NULL,
	tenant      text  COLLATE "C" NOT NULL, -- for distribution by tenant
	header      bytea NOT NULL,
	body        bytea NOT NULL,
	PRIMARY KEY (claim_token, tenant)
);

INSERT INTO idempotency_responses (claim_token, tenant, header, body)
SELECT claim_token, tenant, response_header, response_body FROM idempotency_records
WHERE response_header IS NOT NULL AND response_body IS NOT NULL;

ALTER TABLE idempotency_records DROP COLUMN response_header, DROP COLUMN response_body;
ALTER TABLE idempotency_records SET (fillfactor = 80);
