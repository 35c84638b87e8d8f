package caddymodule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Quotas bound what a route executes, within its operation.
type Quotas struct {
	// Actor bounds each actor of a tenant. Default: no bounds.
	Actor *Quota `json:"actor,omitempty"`

	// Tenant bounds all actors of a tenant together. Default: no bounds.
	Tenant *Quota `json:"tenant,omitempty"`
}

// Quota bounds requests with a new key. A retry of a key that is known is neither
// counted nor refused, whatever is used up.
type Quota struct {
	// MaxExecuting is how many requests may be executing at once, such as 10.
	// Default: 0, any number.
	MaxExecuting int `json:"max_executing,omitempty"`

	// MaxNewKeys is how many keys may be new in a window, such as 1000. What is
	// counted is that a key was claimed: one that is released afterwards has been
	// used. Default: 0, any number.
	MaxNewKeys int `json:"max_new_keys,omitempty"`

	// Window of MaxNewKeys, such as `1h`. Windows follow each other from 1970 on, UTC,
	// by the store's clock. Required with MaxNewKeys.
	Window caddy.Duration `json:"window,omitempty"`
}

const (
	// maxExecuting of a quota: those that are executing are counted with every claim.
	maxExecuting = 10_000

	maxNewKeys = 1_000_000_000
)

var rangeQuotaWindow = durationRange{time.Second, 366 * day, "1h or 1d"}

var errNoQuota = errors.New("there is no limit: write one such as `max_executing 10` or `max_new_keys 1000/1h`")

func (q *Quota) check() error {
	switch {
	case q == nil:
		return nil
	case q.MaxExecuting < 0 || q.MaxExecuting > maxExecuting:
		return fmt.Errorf("max_executing %d is out of range: write 1 to %d", q.MaxExecuting, maxExecuting)
	case q.MaxNewKeys < 0 || q.MaxNewKeys > maxNewKeys:
		return fmt.Errorf("max_new_keys %d is out of range: write 1 to %d", q.MaxNewKeys, maxNewKeys)
	case q.MaxExecuting == 0 && q.MaxNewKeys == 0:
		return errNoQuota
	case q.MaxNewKeys == 0 && q.Window != 0:
		return errors.New("window has no max_new_keys that it is for: write both, or none")
	case q.MaxNewKeys > 0 && q.Window == 0:
		return errors.New("max_new_keys has no window: write one such as \"window\": \"1h\"")
	case q.MaxNewKeys > 0:
		return rangeQuotaWindow.check("window", q.Window)
	}
	return nil
}

func (q Quotas) check() error {
	if err := q.Actor.check(); err != nil {
		return fmt.Errorf("quota.actor: %w", err)
	}
	if err := q.Tenant.check(); err != nil {
		return fmt.Errorf("quota.tenant: %w", err)
	}
	return nil
}

// limits are the quotas as the store knows them.
func (q Quotas) limits() (limits []store.Quota) {
	for _, of := range []struct {
		*Quota
		perTenant bool
	}{{q.Actor, false}, {q.Tenant, true}} {
		if of.Quota == nil {
			continue
		}
		if of.MaxExecuting > 0 {
			limits = append(limits, store.Quota{PerTenant: of.perTenant, Max: of.MaxExecuting})
		}
		if of.MaxNewKeys > 0 {
			limits = append(limits, store.Quota{PerTenant: of.perTenant, Max: of.MaxNewKeys, Window: time.Duration(of.Window)})
		}
	}
	return limits
}

// refuseQuota answers for a claim that would have been one too many.
func refuseQuota(exceeded *store.QuotaExceededError) error {
	whose := "This caller"
	if exceeded.Quota.PerTenant {
		whose = "This tenant"
	}
	detail := fmt.Sprintf("%s may have %d requests executing at once.", whose, exceeded.Quota.Max)
	if exceeded.Quota.Window > 0 {
		detail = fmt.Sprintf("%s may send %d new keys in %s.", whose, exceeded.Quota.Max, brief(exceeded.Quota.Window))
	}
	return &refusal{problem: problemQuota, detail: detail, retryAfter: exceeded.RetryAfter, err: exceeded}
}

// unmarshalQuota reads
//
//	quota actor|tenant {
//		max_executing <n>
//		max_new_keys  <n>/<duration>
//	}
func unmarshalQuota(h *Handler, d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 || args[0] != "actor" && args[0] != "tenant" {
		there := quoted(args)
		if len(args) == 0 {
			there = "nothing"
		}
		return fmt.Errorf("%s is not understood: write whose it is, `quota actor` or `quota tenant`, and a block of limits", there)
	}
	place := &h.Quota.Actor
	if args[0] == "tenant" {
		place = &h.Quota.Tenant
	}
	if *place != nil {
		return fmt.Errorf("that of %s is there twice: leave one", args[0])
	}
	*place = new(Quota)
	of := "quota " + args[0]
	if err := readBlock(d, block[*Quota]{of: of, prefix: of + " ", options: quotaOptions}, *place); err != nil {
		return err
	}
	return (*place).check()
}

var quotaOptions = map[string]readOption[*Quota]{
	"max_executing": func(q *Quota, d *caddyfile.Dispenser) error {
		return one(d, &q.MaxExecuting, number(1, maxExecuting))
	},
	"max_new_keys": func(q *Quota, d *caddyfile.Dispenser) error {
		var rate string
		if err := one(d, &rate, text); err != nil {
			return err
		}
		count, window, found := strings.Cut(rate, "/")
		if _, err := strconv.Atoi(count); !found || err != nil {
			return fmt.Errorf("%q is not a number of keys and a window: write them such as 1000/1h%s", rate, placeholderHelp(rate))
		}
		var err error
		if q.MaxNewKeys, err = number(1, maxNewKeys)(count); err != nil {
			return err
		}
		q.Window, err = duration(rangeQuotaWindow)(window)
		return err
	},
}
