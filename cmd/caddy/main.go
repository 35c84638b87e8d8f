// Command caddy is Caddy with its standard modules and this one: what
// `xcaddy build --with github.com/caddy-idempotency/caddy-idempotency`
// makes, by plain `go build ./cmd/caddy`.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-idempotency/caddy-idempotency" // the module
)

func main() {
	caddycmd.Main()
}
