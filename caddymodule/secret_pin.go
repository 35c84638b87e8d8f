package caddymodule

import (
	"context"
	"crypto/hmac"
	"errors"

	"go.uber.org/zap"
)

// Under another secret no digested key would be found again, and every retry would
// be executed again. So a check value stands beside the records, put there by the
// first program that digests keys, and a route that digests them with another
// secret refuses its requests.

// secretSetting names the check value.
const secretSetting = "secret"

var errOtherSecret = errors.New("the secret is not the one that the keys in this store were digested with, so that none of them would be found: " +
	"set the former secret again; or, if all of those keys may be forgotten and executed again, " +
	"run DELETE FROM idempotency_settings WHERE name = '" + secretSetting + "'")

// proveSecret refuses to look for digested keys under another secret than theirs.
func (a *App) proveSecret(ctx context.Context, b *backend, storeKey string) error {
	if storeKey != StoreKeyDigest || a.proved.Load() {
		return nil
	}
	mine := a.keyed("check", "")
	held, err := b.pin(ctx, secretSetting, mine)
	switch {
	case err != nil:
		return err
	case !hmac.Equal(held, mine):
		return errOtherSecret
	}
	a.proved.Store(true)
	return nil
}

// reportSecret proves the secret at the start, so that a wrong one is in the log
// before the first request is refused. A store that is away is asked by requests.
func (a *App) reportSecret(b *backend) {
	if !a.digests {
		return
	}
	if err := a.proveSecret(a.ctx, b, StoreKeyDigest); errors.Is(err, errOtherSecret) {
		a.log.Error("routes with store_key digest are closed", zap.Error(err))
	}
}

func (b *backend) pin(ctx context.Context, name string, value []byte) ([]byte, error) {
	s := b.store.Load()
	if s == nil {
		return nil, errNotOpen
	}
	// The client cannot cancel it: what it began would be done for nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
	defer cancel()
	return s.Pin(ctx, name, value)
}
