package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Session gives tests a connection of the engine's own pool, to look at what
// its calls leave behind there.
func (e *Engine) Session(ctx context.Context) (*pgxpool.Conn, error) { return e.pool.Acquire(ctx) }

// Statements gives tests the SQL whose plans they look at.
var Statements = map[string]string{
	"list unknown":              listUnknown + unknownPage,
	"list unknown of one":       listUnknown + unknownPage,
	"list unknown, next page":   listUnknown + unknownAfter + unknownPage,
	"list others":               listOthers + othersPage,
	"list others, next page":    listOthers + othersAfter + othersPage,
	"list executing":            listExecuting + othersPage,
	"list executing, next page": listExecuting + othersAfter + othersPage,
	"abandon":                   abandon,
	"expire":                    expire,
	"purge":                     purge,
	"advance":                   advance,
	"count executing":           countExecuting,
	"count settled":             countSettled,
	"take unknown":              takeUnknown,
	"take for probe":            takeForProbe,
	"put off":                   putOff,
	"natural key holder":        naturalKeyHolder,
	"resolve completed":         resolveCompleted,
	"resolve released":          resolveReleased,
	"decided":                   decided,
	"audit":                     audit,
}
