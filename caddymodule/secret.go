package caddymodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
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
	case StoreKeyPlain, StoreKeyDigest:
		return nil
	}
	return fmt.Errorf("%q is not known: write %s or %s", how, StoreKeyPlain, StoreKeyDigest)
}

// EncryptKey is one key for stored responses.
type EncryptKey struct {
	// ID stands beside each response that was encrypted with the key, such as
	// `2026-11`: a constant of up to 64 characters, which never changes its meaning.
	// Required.
	ID string `json:"id,omitempty"`

	// Key is 32 random bytes in base64, such as `openssl rand -base64 32` makes. By a
	// placeholder, such as `{env.IDEMPOTENCY_KEY}`. Required.
	Key string `json:"key,omitempty"`
}

// maxKeyID of an encryption key, in bytes.
const maxKeyID = 64

func checkKeyID(id string) error {
	switch {
	case strings.TrimSpace(id) == "" || !printable(id) || len(id) > maxKeyID:
		return fmt.Errorf("id %q is not 1 to %d printable characters: write one such as 2026-11", id, maxKeyID)
	case strings.ContainsAny(id, "{}"):
		return fmt.Errorf("id %q is a constant, in which placeholders are not resolved: write one such as 2026-11", id)
	}
	return nil
}

// The texts of these errors never show a secret.

func checkSecret(secret string) error {
	if len(strings.TrimSpace(secret)) < minSecret {
		return fmt.Errorf("it is shorter than %d bytes: write a random one, such as `openssl rand -base64 32` makes", minSecret)
	}
	return nil
}

func decodeKey(encoded string) ([]byte, error) {
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || len(decoded) != sealed.KeySize {
		return nil, fmt.Errorf("key is not %d bytes in base64: write one that `openssl rand -base64 32` makes", sealed.KeySize)
	}
	return decoded, nil
}

// isTemplate reports whether what is written is known only when it is provisioned.
func isTemplate(value string) bool { return strings.Contains(value, "{") }

// resolve replaces the placeholders of a value that must be there.
func resolve(template string) (string, error) {
	value, err := caddy.NewReplacer().ReplaceOrErr(template, true, true)
	if err != nil {
		return "", fmt.Errorf("%w: set it before Caddy starts", err)
	}
	return value, nil
}

// provisionSecrets resolves the secrets into unexported fields.
func (a *App) provisionSecrets() error {
	if a.Secret != "" {
		secret, err := resolve(a.Secret)
		if err == nil {
			err = checkSecret(secret)
		}
		if err != nil {
			return fmt.Errorf("secret: %w", err)
		}
		a.secret = []byte(secret)
	}
	for i, key := range a.Encrypt {
		decoded, err := key.provision(a.Encrypt[:i])
		if err != nil {
			return fmt.Errorf("encrypt: %w", err)
		}
		a.keys = append(a.keys, sealed.Key{ID: key.ID, Secret: [sealed.KeySize]byte(decoded)})
	}
	return nil
}

// provision resolves a key, of which others stand before.
func (k EncryptKey) provision(before []EncryptKey) ([]byte, error) {
	if err := k.checkID(before); err != nil {
		return nil, err
	}
	encoded, err := resolve(k.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.ID, err)
	}
	decoded, err := decodeKey(encoded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.ID, err)
	}
	return decoded, nil
}

func (k EncryptKey) checkID(before []EncryptKey) error {
	if err := checkKeyID(k.ID); err != nil {
		return err
	}
	if slices.ContainsFunc(before, func(other EncryptKey) bool { return other.ID == k.ID }) {
		return fmt.Errorf("id %q is there twice: write another, since responses are found by it", k.ID)
	}
	return nil
}

// needSecret refuses a route that wants a keyed digest where there is no key. It is
// called while the routes are provisioned, one after another.
func (a *App) needSecret(storeKey string) error {
	if storeKey != StoreKeyDigest {
		return nil
	}
	a.digests = true
	if a.secret == nil {
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
