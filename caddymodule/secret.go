package caddymodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
)

// The ways to store a client's key.
const (
	StoreKeyPlain  = "plain"
	StoreKeyDigest = "digest"
)

// minSecret in bytes.
const minSecret = 16

func checkStoreKey(how string) error {
	switch how {
	case "", StoreKeyPlain, StoreKeyDigest:
		return nil
	}
	return fmt.Errorf("store_key %q is not known: write %s or %s", how, StoreKeyPlain, StoreKeyDigest)
}

// EncryptKey is one key for stored responses.
type EncryptKey struct {
	// ID stands beside each response that was encrypted with the key. It never
	// changes its meaning.
	ID string `json:"id,omitempty"`

	// Key is 32 random bytes in base64, such as `openssl rand -base64 32` makes. By a
	// placeholder, such as `{env.IDEMPOTENCY_KEY_1}`.
	Key string `json:"key,omitempty"`
}

// provisionSecrets resolves the secrets into unexported fields.
func (a *App) provisionSecrets() error {
	repl := caddy.NewReplacer()
	if a.Secret != "" {
		secret, err := repl.ReplaceOrErr(a.Secret, true, true)
		if err != nil {
			return fmt.Errorf("secret: %w", err)
		}
		if len(secret) < minSecret {
			return fmt.Errorf("secret is shorter than %d bytes: write a random one, such as `openssl rand -base64 32` makes", minSecret)
		}
		a.secret = []byte(secret)
	}
	for _, key := range a.Encrypt {
		encoded, err := repl.ReplaceOrErr(key.Key, true, true)
		if err != nil {
			return fmt.Errorf("encrypt %s: %w", key.ID, err)
		}
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(decoded) != sealed.KeySize {
			return fmt.Errorf("encrypt %s: key is not %d bytes in base64: write one that `openssl rand -base64 32` makes", key.ID, sealed.KeySize)
		}
		a.keys = append(a.keys, sealed.Key{ID: key.ID, Secret: [sealed.KeySize]byte(decoded)})
	}
	_, err := sealed.Wrap(nil, a.keys)
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	return nil
}

// needSecret refuses a route that wants a keyed digest where there is no key.
func (a *App) needSecret(storeKey string) error {
	if storeKey == StoreKeyDigest && a.secret == nil {
		return errors.New("store_key digest needs a secret: write one in the global option, such as `secret {env.IDEMPOTENCY_SECRET}`")
	}
	return nil
}

// storedKey is the client's key as the record has it: itself, or a digest from
// which nobody without the secret can tell whether it was made of a key.
func (a *App) storedKey(how, key string) string {
	if how != StoreKeyDigest {
		return key
	}
	return "hmac-sha256:" + hex.EncodeToString(a.keyed("key", key))
}

// memberKey is the key of the short digests that say which members of a request
// differ; nil without a secret.
func (a *App) memberKey() []byte {
	if a.secret == nil {
		return nil
	}
	return a.keyed("members", "")
}

// keyed is a digest for one use of the secret.
func (a *App) keyed(use, value string) []byte {
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte(use))
	mac.Write([]byte{0})
	mac.Write([]byte(value))
	return mac.Sum(nil)
}
