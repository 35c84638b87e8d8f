package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Session gives tests a connection of the engine's own pool, to look at what
// its calls leave behind there.
func (e *Engine) Session(ctx context.Context) (*pgxpool.Conn, error) { return e.pool.Acquire(ctx) }
