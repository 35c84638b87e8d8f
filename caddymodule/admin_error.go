package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// adminProblem is one row of the table below.
type adminProblem struct {
	slug   string // the type, which never changes
	status int
	exit   int // of the command
}

// Exit codes of `caddy idempotency ls, show, resolve, release, stats`. 2 is left out:
// Caddy's own commands mean something else by it.
const (
	exitDone      = 0
	exitFailed    = 1 // wrong use, or Caddy cannot be reached
	exitNoRecord  = 3
	exitOvertaken = 4 // the record is not what the operator thinks it is
	exitStore     = 5 // nothing was changed, or it is not known: look, and try again
)

// The table of all errors of the admin API.
var (
	adminBadRequest    = adminProblem{"bad-request", http.StatusBadRequest, exitFailed}
	adminNoEndpoint    = adminProblem{"no-such-endpoint", http.StatusNotFound, exitFailed}
	adminWrongMethod   = adminProblem{"wrong-method", http.StatusMethodNotAllowed, exitFailed}
	adminNotJSON       = adminProblem{"not-json", http.StatusUnsupportedMediaType, exitFailed}
	adminTooLarge      = adminProblem{"too-large", http.StatusRequestEntityTooLarge, exitFailed}
	adminNotConfigured = adminProblem{"not-configured", http.StatusNotFound, exitFailed}
	adminNoRecord      = adminProblem{"no-such-record", http.StatusNotFound, exitNoRecord}
	adminNotUnknown    = adminProblem{"not-unknown", http.StatusConflict, exitOvertaken}
	adminOtherAttempt  = adminProblem{"other-attempt", http.StatusConflict, exitOvertaken}
	adminUnreadable    = adminProblem{"unreadable-record", http.StatusInternalServerError, exitStore}
	adminStore         = adminProblem{"store-unavailable", http.StatusServiceUnavailable, exitStore}
)

// adminProblems by their type, for the command.
var adminProblems = func() map[string]adminProblem {
	bySlug := make(map[string]adminProblem)
	for _, p := range []adminProblem{
		adminBadRequest, adminNoEndpoint, adminWrongMethod, adminNotJSON, adminTooLarge, adminNotConfigured,
		adminNoRecord, adminNotUnknown, adminOtherAttempt, adminUnreadable, adminStore,
	} {
		bySlug[p.slug] = p
	}
	return bySlug
}()

// adminError is an answer of the API that is not the one asked for.
type adminError struct {
	adminProblem
	text   string      // what was found, and what to write; never a key
	record *recordView // as it is; nil if there is none
	audit  []decision  // about that record, or the one that was there
}

func (e *adminError) Error() string { return e.text }

// adminErrorBody is the JSON of an error. The member error is what Caddy's own have.
type adminErrorBody struct {
	Type   string      `json:"type"`
	Status int         `json:"status"`
	Text   string      `json:"error"`
	Record *recordView `json:"record,omitempty"`
	Audit  []decision  `json:"audit,omitempty"`
}

func badRequest(format string, args ...any) error {
	return &adminError{adminProblem: adminBadRequest, text: fmt.Sprintf(format, args...)}
}

// adminErrorOf finds the row for an error of any kind. What is nobody's mistake is
// logged.
func adminErrorOf(err error) *adminError {
	var known *adminError
	if errors.As(err, &known) {
		return known
	}
	adminLog().Error("answering an operator", zap.Error(err))
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		return &adminError{adminProblem: adminUnreadable, text: corrupt.Error() + ": its key stays closed; was it written by a newer version?"}
	}
	return &adminError{adminProblem: adminStore, text: "the store does not answer: " + err.Error() + ": try again"}
}

func adminLog() *zap.Logger { return backendLog().Named("operators") }

func writeAdminError(w http.ResponseWriter, e *adminError) {
	if e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryStore.Seconds())))
	}
	writeAdminJSON(w, e.status, adminErrorBody{Type: e.slug, Status: e.status, Text: e.text, Record: e.record, Audit: e.audit})
}
