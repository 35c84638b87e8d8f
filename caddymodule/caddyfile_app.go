package caddymodule

import (
	"errors"
	"fmt"
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
//			migrate      on | off
//		}
//		store       sqlite [<path>]
//		sweep_every <duration>
//		secret      <secret>
//		encrypt     <id> <key>
//	}
func parseApp(d *caddyfile.Dispenser, existing any) (any, error) {
	app := new(App)
	if existing != nil {
		d.Next()
		return nil, d.Err("the global option idempotency is there twice: there is one store; leave one")
	}
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "idempotency", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app; see parseApp for the syntax.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option
	if d.NextArg() {
		return d.Errf("unexpected argument %q: the global option idempotency takes a block of options", d.Val())
	}
	return readBlock(d, block[*App]{
		of: "the global option idempotency", options: appOptions, repeatable: []string{"encrypt"},
	}, a)
}

var appOptions = map[string]readOption[*App]{
	"store": (*App).unmarshalStore,
	"sweep_every": func(a *App, d *caddyfile.Dispenser) error {
		return one(d, &a.SweepEvery, duration(rangeSweep))
	},
	"secret": func(a *App, d *caddyfile.Dispenser) error {
		return one(d, &a.Secret, func(v string) (string, error) {
			if isTemplate(v) {
				return v, nil
			}
			return v, checkSecret(v)
		})
	},
	"encrypt": func(a *App, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) != 2 {
			return errors.New("there " + count(args) + ": write an id and a key, such as `encrypt 2026-11 {env.IDEMPOTENCY_KEY}`; the first line encrypts, all of them decrypt")
		}
		key := EncryptKey{ID: args[0], Key: args[1]}
		if err := key.checkID(a.Encrypt); err != nil {
			return err
		}
		if !isTemplate(key.Key) {
			if _, err := decodeKey(key.Key); err != nil {
				return err
			}
		}
		a.Encrypt = append(a.Encrypt, key)
		return nil
	},
}

// unmarshalStore hands the block over to the store's module, whoever wrote it.
func (a *App) unmarshalStore(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return errors.New("there is no name: write `store sqlite` or `store postgres {env.DATABASE_URL}`")
	}
	name := d.Val()
	id := "idempotency.stores." + name
	if _, err := caddy.GetModule(id); err != nil {
		var known []string
		for _, module := range caddy.GetModules("idempotency.stores") {
			known = append(known, module.ID.Name())
		}
		return fmt.Errorf("%q is not a store of this build: write one of %s", name, strings.Join(known, ", "))
	}
	module, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		return placedError{err} // the module's own dispenser knows the line
	}
	a.StoreRaw = caddyconfig.JSONModuleObject(module, "engine", name, nil)
	return nil
}

var postgresOptions = map[string]readOption[*PostgresStore]{
	"dsn": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		if s.DSN != "" {
			return errors.New("it is on the line of the store already: leave one")
		}
		return one(d, &s.DSN, text)
	},
	"timeout": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		return one(d, &s.Timeout, duration(rangeStoreCall))
	},
	"lock_timeout": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		return one(d, &s.LockTimeout, duration(rangeStoreCall))
	},
	"max_conns": func(s *PostgresStore, d *caddyfile.Dispenser) error {
		n := 0
		err := one(d, &n, number(1, maxConns))
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
	name := d.Token()
	if d.NextArg() {
		if err := checkText(d.Val()); err != nil {
			return located(d, "store postgres: dsn", errors.New("the value is empty: write one such as {env.DATABASE_URL}"))
		}
		s.DSN = d.Val()
	}
	if d.NextArg() {
		return d.Errf("store postgres: %q is one too many: write one dsn, in quotes if it has spaces", d.Val())
	}
	if err := readBlock(d, block[*PostgresStore]{of: "store postgres", prefix: "store postgres: ", options: postgresOptions}, s); err != nil {
		return err
	}
	if s.DSN == "" {
		return errorAt(name, errors.New("store postgres has no dsn: write one such as `store postgres {env.DATABASE_URL}`"))
	}
	return nil
}

// UnmarshalCaddyfile sets up the store; see parseApp for the syntax.
func (s *SQLiteStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name
	if d.NextArg() {
		if err := checkSQLitePath(d.Val()); err != nil {
			return located(d, "store sqlite", err)
		}
		s.Path = d.Val()
	}
	if d.NextArg() {
		return d.Errf("store sqlite: %q is one too many: write one path, in quotes if it has spaces", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		return d.Errf("unknown option %q: store sqlite takes none; write its path on its line", d.Val())
	}
	return nil
}
