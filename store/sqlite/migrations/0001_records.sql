-- One row for each (tenant, actor, operation, key), for as long as the key is
-- known. Times are milliseconds since 1970, UTC, by SQLite's own clock.
--
-- Not WITHOUT ROWID: rows hold whole responses, and such a table would keep them
-- inside the tree that every claim searches, a few rows to a page. Like this the
-- key's tree holds keys alone, an update never touches it, and an entry in one of
-- the indexes below costs a few bytes instead of a second copy of the key.
--
-- No CHECK on state: SQLite cannot change one without copying the table, and a
-- reader has to refuse a state that it does not know in any case.
CREATE TABLE idempotency_records (
	tenant                TEXT    NOT NULL,
	actor                 TEXT    NOT NULL,
	operation             TEXT    NOT NULL,
	key                   TEXT    NOT NULL,
	state                 TEXT    NOT NULL,
	claim_token           BLOB    NOT NULL,
	fingerprint_algorithm INTEGER NOT NULL,
	fingerprint_version   TEXT    NOT NULL,
	fingerprint           BLOB    NOT NULL,
	fingerprint_members   BLOB,
	claimed_at            INTEGER NOT NULL,
	lease_until           INTEGER NOT NULL,
	settled_at            INTEGER,
	unknown_since         INTEGER,
	replay_until          INTEGER,
	keep_until            INTEGER,
	status                INTEGER,
	resource              TEXT,
	reason                TEXT,
	response_header       BLOB,
	response_body         BLOB, -- last: a read that stops before it never loads its pages
	PRIMARY KEY (tenant, actor, operation, key)
) STRICT;

-- What time will do next. Each holds only the rows that wait for it.
CREATE INDEX idempotency_records_lease ON idempotency_records (lease_until)
	WHERE state = 'executing';
CREATE INDEX idempotency_records_window ON idempotency_records (replay_until)
	WHERE state = 'completed';
CREATE INDEX idempotency_records_tombstone ON idempotency_records (keep_until)
	WHERE state = 'expired' AND keep_until IS NOT NULL;

-- What somebody has to look at, the oldest first.
CREATE INDEX idempotency_records_unknown ON idempotency_records (unknown_since)
	WHERE state = 'unknown';

-- How many records there are in each state. Counting them would read an entry for
-- each tombstone, and tombstones are kept for ever unless a route says otherwise.
CREATE TABLE idempotency_counts (
	state   TEXT    NOT NULL PRIMARY KEY,
	records INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO idempotency_counts (state, records)
VALUES ('executing', 0), ('completed', 0), ('unknown', 0), ('expired', 0);

CREATE TRIGGER idempotency_count_insert AFTER INSERT ON idempotency_records
BEGIN
	UPDATE idempotency_counts SET records = records + 1 WHERE state = NEW.state;
END;

CREATE TRIGGER idempotency_count_update AFTER UPDATE OF state ON idempotency_records
BEGIN
	UPDATE idempotency_counts SET records = records - 1 WHERE state = OLD.state;
	UPDATE idempotency_counts SET records = records + 1 WHERE state = NEW.state;
END;

CREATE TRIGGER idempotency_count_delete AFTER DELETE ON idempotency_records
BEGIN
	UPDATE idempotency_counts SET records = records - 1 WHERE state = OLD.state;
END;
