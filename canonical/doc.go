// Package canonical turns a request into its fingerprint: bytes and rules in, a hash out. It reads no file, no clock and
// no network.
package canonical
