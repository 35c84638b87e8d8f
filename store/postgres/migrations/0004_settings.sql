-- What every program on these records has to agree on, such as a check value of the
-- secret that keys were digested with. A row is never changed by a program.
CREATE TABLE idempotency_settings (
	name  text  COLLATE "C" NOT NULL PRIMARY KEY,
	value bytea NOT NULL
);
