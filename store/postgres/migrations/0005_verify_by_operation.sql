-- Outcomes of operations that nobody verifies stay due for ever. They are not to
-- stand in the way of those that somebody does.
DROP INDEX idempotency_records_verify;

CREATE INDEX idempotency_records_verify ON idempotency_records (operation, verify_at)
	WHERE verify_at IS NOT NULL;
