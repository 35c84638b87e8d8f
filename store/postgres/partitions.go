package postgres

import (
	"fmt"
	"strings"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// MaxPartitions bounds Partitioned: each of them costs every connection memory.
const MaxPartitions = 256

const (
	oneTable    = ") WITH (fillfactor = 50);"
	partitioned = ") PARTITION BY HASH (tenant, operation);\n"
	partition   = "CREATE TABLE idempotency_records_%d PARTITION OF idempotency_records\n" +
		"\tFOR VALUES WITH (MODULUS %d, REMAINDER %d) WITH (fillfactor = 50);\n"
)

// Partitioned returns Migrations with the records in n hash partitions, from 2 to
// MaxPartitions (PostgreSQL manual, 5.11). Both unique constraints have tenant and
// operation in them, as PostgreSQL wants it of what a table is partitioned by, so
// that they hold across partitions. It is for a database that has no records yet.
func Partitioned(n int) []store.Migration {
	migrations := Migrations()
	table, rest, found := strings.Cut(migrations[0].SQL, oneTable)
	if !found {
		panic("the first migration has no table to partition") // the file is embedded
	}
	var sql strings.Builder
	sql.WriteString(table + partitioned)
	for i := range n {
		fmt.Fprintf(&sql, partition, i, n, i)
	}
	migrations[0].SQL = sql.String() + rest
	return migrations
}
