// Package canonical turns a request into its fingerprint: bytes and rules in, a hash out. It reads no file, no clock and
// no network, and keeps nothing of what it reads.
//
// A key that a client sends twice is answered from the record of the first request only if both requests mean the same.
// That is what the fingerprint decides, so it must err on one side alone: two requests that might differ must never have
// the same fingerprint. Where a rule below could be read in two ways, the one that counts more was taken.
//
//	Rules ── Compile ──▶ Policy ── Fingerprint(request) ──▶ {algorithm, version, SHA-256, digests of the members}
//	                        │
//	                        └───── Match(stored, now) ──▶ nil, or a Mismatch that names what differs
//
// # What is hashed
//
// The route's version, the method, the path, the media type, the headers that the rules name, the query and the body, in
// this order, each behind a byte that says what it is and a length. Nothing can move from one to the next without the
// hash changing.
//
// # How JSON is read
//
// In one pass, strictly, and without floating point. Each value is laid down in an encoding of its own: a byte for its
// type, texts as their length and their UTF-8, numbers as sign, digits and exponent, arrays in their order, objects
// sorted by name. A value whose encoding exceeds 2 KiB is replaced in that of its parent by its SHA-256, so the hash is a
// shallow tree. This is why an array or a text of any length needs no memory, why each byte is copied a small number of
// times however deep it lies, and why the digest of a member is at hand when the hash is done.
//
// What a person is shown (Canonical, CanonicalJSON) is rendered from the same encoding, so it cannot differ from what
// counts.
//
// # What is refused
//
// Everything that two readers could understand differently: duplicate names in whatever spelling, invalid UTF-8, lone
// surrogates, a byte-order mark, more after the end, nesting beyond the limit, exponents beyond 18 digits. A BodyError
// says where and why, and never quotes a value.
//
// # Versions
//
// A Fingerprint carries the number of the algorithm that made it. What an algorithm makes of a request never changes;
// testdata/golden.tsv holds it to that. A record of an unknown algorithm matches nothing.
package canonical
