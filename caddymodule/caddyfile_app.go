package caddymodule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// parseApp sets up the app from the global option:
//
//	idempotency {
//		store       postgres [<dsn>] {
//			dsn          <dsn>
//			timeout      <duration>
//			lock_timeout <duration>
//			max_conns    <n>
//			pooler       transaction
//			migrate      off
//		}
//		store       sqlite [<path>]
//		sweep_every <duration>
//	}
func parseApp(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Errf("the global option idempotency is there twice: there is one store; leave one")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "idempotency", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app; see parseApp for the syntax.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option
	if d.NextArg() {
		return d.Errf("unexpected argument %q: the global option idempotency takes a block, and its line ends with {", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		switch option {
		case "store":
			if a.StoreRaw != nil {
				return d.Errf("option store is there twice: leave one")
			}
			if err := a.unmarshalStore(d); err != nil {
				return err
			}
		case "sweep_every":
			if err := one(d, &a.SweepEvery, duration); err != nil {
				return located(d, option, err)
			}
		default:
			return d.Errf("unknown option %q: the options of the global idempotency are store, sweep_every", option)
		}
	}
	return nil
}

// unmarshalStore hands the block over to the store's module, whoever wrote it.
func (a *App) unmarshalStore(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("store: there is no name: write `store sqlite` or `store postgres {env.DATABASE_URL}`")
	}
	name := d.Val()
	id := "idempotency.stores." + name
	if _, err := caddy.GetModule(id); err != nil {
		var known []string
		for _, module := range caddy.GetModules("idempotency.stores") {
			known = append(known, module.ID.Name())
		}
		return d.Errf("store: %q is not a store of this build: write one of %s", name, strings.Join(known, ", "))
	}
	module, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		return err
	}
	a.StoreRaw = caddyconfig.JSONModuleObject(module, "engine", name, nil)
	return nil
}

var postgresOptions = map[string]func(*PostgresStore, *caddyfile.Dispenser) error{
	"dsn":          func(s *PostgresStore, d *caddyfile.Dispenser) error { return one(d, &s.DSN, text) },
	"timeout":      func(s *PostgresStore, d *caddyfile.Dispenser) error { return one(d, &s.Timeout, duration) },
	"lock_timeout": func(s *PostgresStore, d *caddyfile.Dispenser) error { return one(d, &s.LockTimeout, duration) },
	"max_conns": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		n := 0
		err := one(d, &n, number(1, 10_000))
		s.MaxConns = int32(n)
		return err
	},
	"pooler": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		return one(d, &s.Pooler, func(v string) (postgres.Pooler, error) {
			if v != string(postgres.TransactionPooler) {
				return "", fmt.Errorf("%q is not known: write %s, or leave the line out", v, postgres.TransactionPooler)
			}
			return postgres.TransactionPooler, nil
		})
	},
	"migrate": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		return one(d, &s.MigrateOff, func(v string) (bool, error) {
			if v != "on" && v != "off" {
				return false, fmt.Errorf("%q is not known: write off, or leave the line out", v)
			}
			return v == "off", nil
		})
	},
}

// UnmarshalCaddyfile sets up the store; see parseApp for the syntax.
func (s *PostgresStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name
	if d.NextArg() {
		s.DSN = d.Val()
	}
	if d.NextArg() {
		return d.Errf("store postgres: %q is one too many: write one connection string, in quotes if it has spaces", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		parse, known := postgresOptions[option]
		if !known {
			return d.Errf("unknown option %q: the options of store postgres are %s", option, names(postgresOptions))
		}
		if option == "dsn" && s.DSN != "" {
			return d.Errf("dsn is there twice: leave one")
		}
		if err := parse(s, d); err != nil {
			return located(d, option, err)
		}
	}
	if s.DSN == "" {
		return d.Errf("store postgres has no dsn: write one such as `store postgres {env.DATABASE_URL}`")
	}
	return nil
}

// UnmarshalCaddyfile sets up the store; see parseApp for the syntax.
func (s *SQLiteStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name
	if d.NextArg() {
		s.Path = d.Val()
	}
	if d.NextArg() {
		return d.Errf("store sqlite: %q is one too many: write one path, in quotes if it has spaces", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		return d.Errf("unknown option %q: store sqlite has none; its path stands on its line", d.Val())
	}
	return nil
}

// located adds file, line and option to an error of an option's value.
func located(d *caddyfile.Dispenser, option string, err error) error {
	return d.WrapErr(fmt.Errorf("%s: %w", option, err))
}

// names lists the names of options in order, for an error's text.
func names[T any](options map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(options)), ", ")
}
