// Package store keeps idempotency records: it holds the words, the states and
// the one place where the protocol over them is written. It knows neither HTTP
// nor Caddy nor any database driver; see the packages postgres and sqlite for
// how an engine makes each transition atomic, and storetest for what every
// engine must do.
//
// # Words
//
// A scope says who is asking and for what: tenant, actor, operation. A key is
// what the client chose, unique within its scope. A record is the one row for
// (tenant, actor, operation, key). A claim is the winning INSERT of a record; it
// carries a token made before the INSERT, and only the holder of that token
// moves the record out of executing. A lease says until when the claimant may
// still be working, by the database's clock. The replay window is how long a
// stored response can be replayed, counted from completion. A tombstone is a
// record whose response has been cleared: key, fingerprint, status and resource
// remain.
//
// # States
//
//	(no record) --claim-------------> executing
//	executing   --complete----------> completed
//	executing   --release-----------> (no record)
//	executing   --mark unknown------> unknown
//	executing   --abandon-----------> unknown
//	unknown     --complete----------> completed
//	unknown     --release-----------> (no record)
//	unknown     --resolve completed-> completed
//	unknown     --resolve released--> (no record)
//	completed   --expire------------> expired
//	expired     --purge-------------> (no record)
//
// Complete, mark unknown and release belong to the holder of the token. Resolve is
// what a verifier or an operator decides about the record as they saw it; it is
// kept in the audit, and the record's new token fences its claimant off. Abandon
// (the lease is over), expire (the replay window is over) and purge (the
// tombstone is older than the route keeps it) are what time does, in
// background batches. Time never reopens a key whose outcome is in doubt:
// purge, which is off by default, touches settled tombstones alone.
//
// # Rules
//
// Every transition is one guarded statement which tells what really happened.
// A state that this version does not know, or a row that cannot be read, is an
// error (CorruptError), never "no record". Whatever may be repeated after a lost
// acknowledgement is repeated with the same token, and a record that carries the
// token already is success.
package store
