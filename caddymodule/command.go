package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// command is `caddy idempotency`.
var command = caddycmd.Command{
	Name:  "idempotency",
	Usage: "<command>",
	Short: "Tools for the idempotency module",
	CobraFunc: func(cmd *cobra.Command) {
		cmd.AddCommand(fingerprintCommand(), migrationsCommand())
		cmd.AddCommand(operatorCommands()...)
	},
}

// migrationsCommand prints the schema for a DBA: `migrate off` leaves it to them.
func migrationsCommand() *cobra.Command {
	var from, partitions int
	cmd := &cobra.Command{
		Use:   "migrations [--from <version>] [--partitions <n>]",
		Short: "Print the SQL of PostgreSQL's schema",
		Long: `
Prints the numbered migrations of the PostgreSQL schema, each as one transaction
that also records it as applied, for teams whose DBA runs them (` + "`migrate off`" + `).

The role that serves requests then needs no more than

    GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_responses, idempotency_due TO <role>;
    GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_quotas, idempotency_slots TO <role>;
    GRANT SELECT, INSERT ON idempotency_audit, idempotency_settings TO <role>;
    GRANT SELECT ON idempotency_migrations TO <role>;

With --partitions, the records are in so many hash partitions by tenant and
operation, from 2 to 256. That can be chosen before there are records, and not later.
`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			migrations := postgres.Migrations()
			switch {
			case partitions == 0:
			case partitions < 2 || partitions > postgres.MaxPartitions:
				return fmt.Errorf("--partitions %d is out of range: write a number from 2 to %d, or leave it out for one table", partitions, postgres.MaxPartitions)
			case from > 0:
				return errors.New("--partitions is for a new database: leave it out together with --from, the partitions stay as they are")
			default:
				migrations = postgres.Partitioned(partitions)
			}
			return printMigrations(cmd.OutOrStdout(), migrations, from)
		},
	}
	cmd.Flags().IntVar(&from, "from", 0, "Leave out the migrations up to this version, which are applied already")
	cmd.Flags().IntVar(&partitions, "partitions", 0, "Put the records of a new database into so many hash partitions")
	return cmd
}

func printMigrations(w io.Writer, migrations []store.Migration, from int) error {
	var sql strings.Builder
	if from == 0 {
		fmt.Fprintf(&sql, "%s;\n\n", postgres.MigrationsTable)
	}
	for _, m := range migrations {
		if m.Version > from {
			fmt.Fprintf(&sql, "-- %04d %s\nBEGIN;\n\n%s\n%s;\n\nCOMMIT;\n\n", m.Version, m.Name, m.SQL, postgres.Bookkeeping(m))
		}
	}
	_, err := io.WriteString(w, sql.String())
	return err
}
