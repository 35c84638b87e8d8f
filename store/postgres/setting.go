package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const (
	pinSetting = `INSERT INTO idempotency_settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`

	// A statement of its own: the snapshot of the one before does not show the row
	// that it lost to.
	heldSetting = `SELECT value FROM idempotency_settings WHERE name = $1`
)

// Pin implements store.Engine.
func (e *Engine) Pin(ctx context.Context, name string, value []byte) (held []byte, err error) {
	err = e.inTx(ctx, "pinning setting", durable, func(b *pgx.Batch) {
		b.Queue(pinSetting, name, value)
		b.Queue(heldSetting, name).QueryRow(func(row pgx.Row) error { return row.Scan(&held) })
	})
	return held, err
}
