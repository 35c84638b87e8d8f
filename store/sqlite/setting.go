package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	pinSetting  = `INSERT INTO idempotency_settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING`
	heldSetting = `SELECT value FROM idempotency_settings WHERE name = ?1`
)

// Pin implements store.Engine.
func (e *Engine) Pin(ctx context.Context, name string, value []byte) (held []byte, err error) {
	const op = "pinning setting"
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := e.transition(ctx, op, step{pinSetting, []any{name, value}}); err != nil && !errors.Is(err, store.ErrNotHeld) {
		return nil, err
	}
	err = e.each(ctx, op, func(rows *sql.Rows) error { return rows.Scan(&held) }, heldSetting, name)
	return held, err
}
