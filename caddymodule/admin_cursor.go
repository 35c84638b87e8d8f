package caddymodule

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// A cursor says where the next page begins, which is at a record: so it holds a key,
// and it stands in a URI, which is logged. It is sealed by a secret of this process,
// and good for as long as that lives.
var cursors = sync.OnceValue(func() cipher.AEAD {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return sealer
})

// position in a list.
type position struct {
	Identity store.Identity
	Since    time.Time // in the state
}

// listOf is what a cursor belongs to: in another list it would skip records.
func listOf(f store.Filter) []byte {
	encoded, _ := json.Marshal([]string{string(f.State), f.Tenant, f.Operation})
	return encoded
}

// sealCursor makes the cursor of the page after the record.
func sealCursor(f store.Filter, last *store.Record) (string, error) {
	since := last.SettledAt
	if since.IsZero() {
		since = last.ClaimedAt
	}
	encoded, err := json.Marshal(position{Identity: last.Identity, Since: since})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(cursors().Seal(nil, nil, encoded, listOf(f))), nil
}

// openCursor reads what sealCursor made for the same list.
func openCursor(f store.Filter, cursor string) (*store.Record, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		sealed, err = cursors().Open(nil, nil, sealed, listOf(f))
	}
	var p position
	if err == nil {
		err = json.Unmarshal(sealed, &p)
	}
	if err != nil {
		return nil, badRequest("after is no cursor of this list, or one from before Caddy was started: ask for the first page, without it")
	}
	return &store.Record{Identity: p.Identity, SettledAt: p.Since, ClaimedAt: p.Since}, nil
}
