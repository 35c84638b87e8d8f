package caddymodule

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// What the commands print for people. --json prints the API's answers as they are.

// cell is text for a table: what could move a terminal's cursor is quoted, and what
// is not there is a dash.
func cell(text string) string {
	switch {
	case text == "":
		return "-"
	case !printable(text):
		return strconv.Quote(text)
	}
	return text
}

func statusCell(status int) string {
	if status == 0 {
		return "-"
	}
	return strconv.Itoa(status)
}

func ageCell(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", seconds)
}

// table prints lines of cells in columns.
func table(out io.Writer, lines [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, strings.Join(line, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

func printList(out io.Writer, list listView) error {
	lines := [][]string{{"AGE", "STATE", "STATUS", "TENANT", "ACTOR", "OPERATION", "KEY", "ATTEMPT", "RESOURCE", "REASON"}}
	for _, r := range list.Records {
		lines = append(lines, []string{
			ageCell(r.Age), cell(string(r.State)), statusCell(r.Status), cell(r.Tenant), cell(r.Actor),
			cell(r.Operation), cell(r.Key), cell(r.Attempt), cell(r.Resource), cell(r.Reason),
		})
	}
	if err := table(out, lines); err != nil {
		return err
	}
	if list.Next != "" {
		_, err := fmt.Fprintf(out, "\nThese are the first %d. Raise --limit for more, or go on with --after %s\n", len(list.Records), list.Next)
		return err
	}
	return nil
}

func printRecord(out io.Writer, r recordView) error {
	lines := [][]string{
		{"state", cell(string(r.State)) + ", for " + ageCell(r.Age)},
		{"tenant", cell(r.Tenant)},
		{"actor", cell(r.Actor)},
		{"operation", cell(r.Operation)},
		{"key", cell(r.Key)},
		{"key digest", cell(r.KeyDigest) + ", in the logs"},
		{"attempt", cell(r.Attempt)},
		{"status", statusCell(r.Status)},
		{"resource", cell(r.Resource)},
		{"natural key", cell(r.NaturalKey)},
		{"reason", cell(r.Reason)},
		{"verifications", strconv.Itoa(r.Verifications)},
		{"claimed at", timeCell(&r.ClaimedAt)},
		{"lease until", timeCell(&r.LeaseUntil)},
		{"settled at", timeCell(r.SettledAt)},
		{"replay until", timeCell(r.ReplayUntil)},
	}
	return table(out, lines)
}

func timeCell(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func printAudit(out io.Writer, audit []decision) error {
	if len(audit) == 0 {
		_, err := fmt.Fprintln(out, "\nnothing was decided about it")
		return err
	}
	if _, err := fmt.Fprintln(out, "\nwhat was decided:"); err != nil {
		return err
	}
	lines := [][]string{{"AT", "BY", "FROM", "TO", "STATUS", "REASON"}}
	for _, d := range audit {
		lines = append(lines, []string{
			timeCell(&d.At), cell(d.By), cell(string(d.From)), cell(d.To), statusCell(d.Status), cell(d.Reason),
		})
	}
	return table(out, lines)
}

func printShown(out io.Writer, view showView) error {
	if err := printRecord(out, view.Record); err != nil {
		return err
	}
	if err := printAudit(out, view.Audit); err != nil {
		return err
	}
	switch {
	case view.Response != nil:
		return printResponse(out, *view.Response)
	case view.ResponseKept:
		_, err := fmt.Fprintln(out, "\nits response is kept: --response shows it")
		return err
	}
	_, err := fmt.Fprintln(out, "\nits response is not kept")
	return err
}

func printResponse(out io.Writer, r responseView) error {
	if _, err := fmt.Fprintln(out, "\nits response:"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			if _, err := fmt.Fprintf(out, "%s: %s\n", name, cell(value)); err != nil {
				return err
			}
		}
	}
	body := r.Body
	if r.BodyBase64 != nil {
		body = fmt.Sprintf("(%d bytes that are not text; --json has them)", len(r.BodyBase64))
	}
	_, err := fmt.Fprintf(out, "\n%s\n", bodyText(body))
	return err
}

// bodyText keeps the lines of a body, and quotes one that could do more.
func bodyText(body string) string {
	if !printable(strings.NewReplacer("\r", "", "\n", "", "\t", "").Replace(body)) {
		return strconv.Quote(body)
	}
	return body
}

func printDone(out io.Writer, view resolveView) error {
	what := "The record is completed: a retry is answered with what you wrote."
	if view.Done == released {
		what = "The key is open again: a retry is executed."
	}
	if _, err := fmt.Fprintln(out, what); err != nil {
		return err
	}
	return printAudit(out, view.Audit)
}

// printAbout prints what came with an error: the record as it is, and its audit.
func printAbout(out io.Writer, body adminErrorBody) error {
	if body.Record != nil {
		if err := printRecord(out, *body.Record); err != nil {
			return err
		}
	}
	if len(body.Audit) == 0 {
		return nil
	}
	return printAudit(out, body.Audit)
}

func printStats(out io.Writer, view statsView) error {
	lines := [][]string{{"STATE", "RECORDS"}}
	for _, state := range store.States {
		lines = append(lines, []string{string(state), strconv.FormatInt(view.Records[state], 10)})
	}
	if err := table(out, lines); err != nil {
		return err
	}
	if view.Records[store.Unknown] == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\nthe oldest unknown outcome is %s old\n", ageCell(view.OldestUnknown))
	return err
}
