// Command testcaddy is Caddy with this module, as the end-to-end tests run it,
// and one directive more: a handler that does what a handler should not.
//
// It ends when its standard input does, so that no gateway outlives a test
// process, however that ended.
package main

import (
	"io"
	"os"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-idempotency/caddy-idempotency" // the module
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	caddycmd.Main()
}
