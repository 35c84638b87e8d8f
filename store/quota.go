package store

import (
	"fmt"
	"time"
)

// Quota bounds the claims of one actor, or of a whole tenant, within the draft's
// operation. A draft has at most one of each kind: two for the same subject have
// different windows.
type Quota struct {
	PerTenant bool // all actors of the tenant together; if not, the actor alone
	Max       int

	// Window bounds the keys that are new in it; 0 bounds the records that are
	// executing at once. Windows follow each other without a gap, by the database's
	// clock, and begin with 1970, UTC: those of an hour at the full hour.
	Window time.Duration
}

// RetryExecuting is when it is worth to ask again for a claim that would have been
// one too many at once: nobody knows when one of them will end.
const RetryExecuting = time.Second

// Subject is the actor that a quota's use is kept under; "" is all of them, which no
// actor is called.
func (q Quota) Subject(scope Scope) string {
	if q.PerTenant {
		return ""
	}
	return scope.Actor
}

// QuotaExceededError says that the claim would have been one more than a quota
// allows. Nothing was inserted, and nothing was counted.
type QuotaExceededError struct {
	Quota      Quota         // of several, the one that is the last to allow it
	RetryAfter time.Duration // by the database's clock
}

func (e *QuotaExceededError) Error() string {
	of := "actor"
	if e.Quota.PerTenant {
		of = "tenant"
	}
	if e.Quota.Window == 0 {
		return fmt.Sprintf("quota of the %s is exceeded: %d executing at once", of, e.Quota.Max)
	}
	return fmt.Sprintf("quota of the %s is exceeded: %d new keys in %s", of, e.Quota.Max, e.Quota.Window)
}
