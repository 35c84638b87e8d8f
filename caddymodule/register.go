package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(PostgresStore{})
	caddy.RegisterModule(SQLiteStore{})
	caddy.RegisterModule(Handler{})
	caddy.RegisterModule(Status{})
	caddy.RegisterModule(AdminAPI{})

	caddycmd.RegisterCommand(command)

	httpcaddyfile.RegisterGlobalOption("idempotency", parseApp)
	httpcaddyfile.RegisterHandlerDirective("idempotency", parseHandler)
	// After authentication, so that rights are checked again on every replay; after
	// encode, so that what is stored is not compressed.
	httpcaddyfile.RegisterDirectiveOrder("idempotency", httpcaddyfile.After, "encode")

	httpcaddyfile.RegisterHandlerDirective("idempotency_status", parseStatus)
	httpcaddyfile.RegisterDirectiveOrder("idempotency_status", httpcaddyfile.Before, "respond")
}
