-- Responses have a table of their own: a record keeps its size when it is completed,
-- so that it finds room on its page (HOT), however large the response is. Tokens come
-- in order of time, and so do the entries of this index.
CREATE TABLE idempotency_responses (
	claim_token uuid  NOT NULL,
	tenant      text  COLLATE "C" NOT NULL, -- which stands in every unique constraint
	header      bytea NOT NULL,
	body        bytea NOT NULL,
	PRIMARY KEY (claim_token, tenant)
);

INSERT INTO idempotency_responses (claim_token, tenant, header, body)
SELECT claim_token, tenant, response_header, response_body FROM idempotency_records
WHERE response_header IS NOT NULL AND response_body IS NOT NULL;

ALTER TABLE idempotency_records DROP COLUMN response_header, DROP COLUMN response_body;
