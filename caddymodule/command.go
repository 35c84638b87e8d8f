package caddymodule

import (
	"fmt"
	"io"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

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
	var from int
	cmd := &cobra.Command{
		Use:   "migrations [--from <version>]",
		Short: "Print the SQL of PostgreSQL's schema",
		Long: `
Prints the numbered migrations of the PostgreSQL schema, each as one transaction
that also records it as applied, for teams whose DBA runs them (` + "`migrate off`" + `).

The role that serves requests then needs no more than

    GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_due TO <role>;
    GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_quotas, idempotency_slots TO <role>;
    GRANT SELECT, INSERT ON idempotency_audit, idempotency_settings TO <role>;
    GRANT SELECT ON idempotency_migrations TO <role>;
`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printMigrations(cmd.OutOrStdout(), from)
		},
	}
	cmd.Flags().IntVar(&from, "from", 0, "Leave out the migrations up to this version, which are applied already")
	return cmd
}

func printMigrations(w io.Writer, from int) error {
	var sql strings.Builder
	if from == 0 {
		fmt.Fprintf(&sql, "%s;\n\n", postgres.MigrationsTable)
	}
	for _, m := range postgres.Migrations() {
		if m.Version > from {
			fmt.Fprintf(&sql, "-- %04d %s\nBEGIN;\n\n%s\n%s;\n\nCOMMIT;\n\n", m.Version, m.Name, m.SQL, postgres.Bookkeeping(m))
		}
	}
	_, err := io.WriteString(w, sql.String())
	return err
}
