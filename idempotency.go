// Package idempotency adds the module to a build of Caddy:
//
//	xcaddy build --with github.com/caddy-idempotency/caddy-idempotency
//
// See package caddymodule for what it does.
package idempotency

import (
	_ "github.com/caddy-idempotency/caddy-idempotency/caddymodule" // registers the modules
)
