// Package caddymodule is Caddy's face of the gateway: what it knows is HTTP,
// Caddy, and the order of one request. Words and states are package store's, the
// fingerprint is package canonical's.
//
// A request goes through these steps, each a method of Handler:
//
//	guards       is it a write that this route protects?
//	identify     key and scope, before a byte of the body is read
//	fingerprint  the body, to its end, under its limit
//	claim        compete for the record
//	execute      the winner: forward, settle, then answer
//	answerFrom   everyone else: replay, refuse, wait, or say what is known
//
// One file holds one concern: outcome.go says what an upstream's behaviour
// means, problem.go says how each refusal is answered, recorder.go keeps the
// upstream's response until its outcome is durable, backend.go is what outlives
// a reload of the configuration.
package caddymodule
