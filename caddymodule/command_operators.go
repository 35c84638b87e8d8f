package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/user"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// exitCodesHelp stands in the help of each command that talks to a running Caddy.
const exitCodesHelp = `
It talks to the admin endpoint of a running Caddy. The exit status is

    0  done
    1  wrong use, or Caddy cannot be reached
    3  there is no such record
    4  the record is not unknown any more, or is of another attempt: nothing was changed
    5  the store does not answer: look whether it was done, and try again
`

// operator is one invocation of a command.
type operator struct {
	adminClient
	json bool
}

func operatorCommands() []*cobra.Command {
	return []*cobra.Command{listCommand(), showCommand(), resolveCommand(), releaseCommand(), statsCommand()}
}

// command makes a command of a call to the API and of what prints its answer for
// people.
func (o *operator) command(use, short, long string, run func(ctx context.Context, out io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long + exitCodesHelp, Args: cobra.NoArgs, SilenceUsage: true}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) {
			err := run(cmd.Context(), cmd.OutOrStdout())
			return exitCode(err), err
		})(cmd, args)
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "Print the answer as JSON, also that of an error")
	return cmd
}

// do calls the API and prints its answer: as it is, or for people.
func do[T any](ctx context.Context, o *operator, out io.Writer, method, uri string, input any, print func(io.Writer, T) error) error {
	answer, err := o.call(ctx, method, uri, input)
	if o.json && answer != nil {
		if _, err := out.Write(answer); err != nil {
			return err
		}
	}
	var answered *commandError
	switch {
	case o.json:
		return err
	case errors.As(err, &answered):
		return errors.Join(err, printAbout(out, answered.adminErrorBody))
	case err != nil:
		return err
	}
	var view T
	if err := json.Unmarshal(answer, &view); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return print(out, view)
}

func listCommand() *cobra.Command {
	o := new(operator)
	var state, older, tenant, operation, after string
	var limit int
	cmd := o.command("ls [--state unknown] [--older <duration>] [--tenant <tenant>] [--operation <operation>]",
		"List records, unknown outcomes unless said otherwise",
		`
Lists the records of one state: unknown outcomes the oldest first, all others in the
order of tenant, actor, operation and key. What on-call runs first is

    caddy idempotency ls --state unknown --older 10m
`,
		func(ctx context.Context, out io.Writer) error {
			query := make(url.Values)
			for name, value := range map[string]string{"state": state, "older": older, "tenant": tenant, "operation": operation, "after": after} {
				if value != "" {
					query.Set(name, value)
				}
			}
			return o.list(ctx, out, query, limit)
		})
	flags := cmd.Flags()
	flags.StringVar(&state, "state", "unknown", "State of the records: "+stateNames())
	flags.StringVar(&older, "older", "", "Only records that have been in the state for so long, such as 10m or 1d")
	flags.StringVar(&tenant, "tenant", "", "Only records of this tenant")
	flags.StringVar(&operation, "operation", "", "Only records of this operation")
	flags.IntVar(&limit, "limit", defaultPage, "How many records at most")
	flags.StringVar(&after, "after", "", "Go on after the list that ended with this cursor")
	return cmd
}

// list asks for pages until there are as many records as wanted.
func (o *operator) list(ctx context.Context, out io.Writer, query url.Values, limit int) error {
	if limit < 1 {
		return fmt.Errorf("limit %d is out of range: write 1 or more", limit)
	}
	var all listView
	for {
		query.Set("limit", strconv.Itoa(min(limit-len(all.Records), maxPage)))
		answer, err := o.call(ctx, http.MethodGet, adminBase+"records?"+query.Encode(), nil)
		if err != nil {
			if o.json && answer != nil {
				_, _ = out.Write(answer)
			}
			return err
		}
		var page listView
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		all.Records, all.Next = append(all.Records, page.Records...), page.Next
		if page.Next == "" || len(all.Records) >= limit {
			break
		}
		query.Set("after", page.Next)
	}
	if o.json {
		return json.NewEncoder(out).Encode(all)
	}
	return printList(out, all)
}

// identityFlags address a record, by what ls shows.
func identityFlags(cmd *cobra.Command, id *identityInput) {
	flags := cmd.Flags()
	flags.StringVar(&id.Tenant, "tenant", DefaultTenant, "Tenant of the record")
	flags.StringVar(&id.Actor, "actor", "", "Actor of the record (required)")
	flags.StringVar(&id.Operation, "operation", "", "Operation of the record (required)")
	flags.StringVar(&id.Key, "key", "", "Idempotency key of the record (required)")
	for _, name := range []string{"actor", "operation", "key"} {
		_ = cmd.MarkFlagRequired(name)
	}
}

func showCommand() *cobra.Command {
	o := new(operator)
	var input showInput
	cmd := o.command("show --actor <actor> --operation <operation> --key <key>",
		"Show a record, and what was decided about it",
		`
Shows all that is known of one record, with the audit of what operators and the
verifier decided. The audit is left when the record is gone.
`,
		func(ctx context.Context, out io.Writer) error {
			return do(ctx, o, out, http.MethodPost, adminBase+"show", input, printShown)
		})
	identityFlags(cmd, &input.identityInput)
	cmd.Flags().BoolVar(&input.Response, "response", false, "Show the stored response, too, which may hold a customer's data")
	return cmd
}

// decisionFlags say who decides, and why.
func decisionFlags(cmd *cobra.Command, d *decisionInput) {
	identityFlags(cmd, &d.identityInput)
	flags := cmd.Flags()
	flags.StringVar(&d.Reason, "reason", "", "How you know, for the audit (required)")
	flags.StringVar(&d.By, "by", osUser(), "Who decides, for the audit")
	flags.StringVar(&d.Attempt, "attempt", "", "Decide about this attempt alone, as ls and show name it")
	_ = cmd.MarkFlagRequired("reason")
}

// osUser is the name of the user who runs the command; "" if the system knows none.
func osUser() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}

func resolveCommand() *cobra.Command {
	o := new(operator)
	var input resolveInput
	var body, replayFor, keepFor string
	cmd := o.command("resolve --actor <actor> --operation <operation> --key <key> --as completed|not-executed --reason <text>",
		"Decide about an unknown outcome",
		`
Settles an unknown outcome by what you found out in the service.

--as completed: the request was executed. A retry is answered with --status,
--location and --body from now on.

    caddy idempotency resolve --actor alice --operation create-order --key K1 \
        --as completed --status 201 --location /orders/17 --body @order.json \
        --reason "order 17 is in the books, ticket 4711"

--as not-executed: it was not, and will not be any more. The key is open again, and a
retry is executed.

Whoever decides first wins: the verifier, a late answer, or another operator. You are
told, and nothing is changed.
`,
		func(ctx context.Context, out io.Writer) error {
			for _, d := range []struct {
				name, value string
				into        *caddy.Duration
			}{{"replay-for", replayFor, &input.ReplayFor}, {"keep-for", keepFor, &input.KeepFor}} {
				if d.value == "" {
					continue
				}
				parsed, err := caddy.ParseDuration(d.value)
				if err != nil {
					return fmt.Errorf("--%s %q is not a duration: write one such as 24h or 30d", d.name, d.value)
				}
				*d.into = caddy.Duration(parsed)
			}
			if err := input.setBody(body); err != nil {
				return err
			}
			return do(ctx, o, out, http.MethodPost, adminBase+"resolve", input, printDone)
		})
	decisionFlags(cmd, &input.decisionInput)
	flags := cmd.Flags()
	flags.StringVar(&input.As, "as", "", "What happened: completed or not-executed (required)")
	flags.IntVar(&input.Status, "status", 0, "Status that a retry is answered with, such as 201")
	flags.StringVar(&input.Location, "location", "", "Location that a retry is answered with")
	flags.StringVar(&input.Resource, "resource", "", "Reference to the business object (default: the location)")
	flags.StringVar(&body, "body", "", "Body that a retry is answered with: text, @file, or @- for standard input")
	flags.StringVar(&input.ContentType, "content-type", "", "Type of the body (default: application/json, if it is JSON)")
	flags.BoolVar(&input.WithoutResponse, "without-response", false, "Keep status and resource alone; a retry is told that the response is not kept")
	flags.StringVar(&replayFor, "replay-for", "", "How long a retry is answered with it (default 24h)")
	flags.StringVar(&keepFor, "keep-for", "", "How long the key is known after that (default: for ever)")
	_ = cmd.MarkFlagRequired("as")
	return cmd
}

// setBody takes the body from the command line or from a file.
func (i *resolveInput) setBody(body string) error {
	content := []byte(body)
	if name, isFile := strings.CutPrefix(body, "@"); isFile {
		var err error
		if content, err = readFile(name); err != nil {
			return fmt.Errorf("--body: %w", err)
		}
	}
	if utf8.Valid(content) {
		i.Body = string(content)
	} else {
		i.BodyBase64 = content
	}
	return nil
}

func releaseCommand() *cobra.Command {
	o := new(operator)
	var input decisionInput
	cmd := o.command("release --actor <actor> --operation <operation> --key <key> --reason <text>",
		"Open a key again whose request was not executed",
		`
The same as resolve --as not-executed: the request did not have any effect, and cannot
have one any more. A retry is executed.
`,
		func(ctx context.Context, out io.Writer) error {
			return do(ctx, o, out, http.MethodPost, adminBase+"release", input, printDone)
		})
	decisionFlags(cmd, &input)
	return cmd
}

func statsCommand() *cobra.Command {
	o := new(operator)
	return o.command("stats", "Count the records",
		`
Counts the records by their state, and says how old the oldest unknown outcome is. On
a large PostgreSQL table, completed and expired are estimates.
`,
		func(ctx context.Context, out io.Writer) error {
			return do(ctx, o, out, http.MethodGet, adminBase+"stats", nil, printStats)
		})
}
