// Package sealed encrypts stored responses: an engine around another engine, which
// sees ciphertext alone. Everything else of a record (key, fingerprint, status,
// resource) stays as it is, since the protocol, and operators, need it.
//
// A response is sealed by AES-256-GCM with a random nonce, and bound to the
// identity of its record as additional data: moved to another record it does not
// open. The id of the key stands beside it. The first key seals, every key opens:
// a key is rotated by putting a new one in front. A response whose key is gone, or
// that was changed, is a *store.CorruptError, never a record without a response.
package sealed

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Header marks a sealed response; its value is the id of the key. It stands where
// a response's own header lines stand otherwise, and is never one of them.
const Header = "Idempotency-Sealed"

// KeySize in bytes: AES-256.
const KeySize = 32

// Key is one key of the ring.
type Key struct {
	ID     string
	Secret [KeySize]byte
}

// Engine seals the responses of another engine.
type Engine struct {
	store.Engine
	keys atomic.Pointer[ring]
}

// ring is the keys in force.
type ring struct {
	first string // that seals; "" for none
	keys  map[string]cipher.AEAD
}

// Wrap returns the engine with its responses sealed by the first of the keys. With
// no keys, nothing is sealed, and what is sealed already is an error.
func Wrap(engine store.Engine, keys []Key) (*Engine, error) {
	e := &Engine{Engine: engine}
	return e, e.SetKeys(keys)
}

// SetKeys changes the keys, for the calls that begin from then on.
func (e *Engine) SetKeys(keys []Key) error {
	r := &ring{keys: make(map[string]cipher.AEAD, len(keys))}
	for i, key := range keys {
		block, err := aes.NewCipher(key.Secret[:])
		if err != nil {
			return err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		if _, twice := r.keys[key.ID]; twice || key.ID == "" {
			return fmt.Errorf("key id %q is empty or there twice", key.ID)
		}
		r.keys[key.ID] = aead
		if i == 0 {
			r.first = key.ID
		}
	}
	e.keys.Store(r)
	return nil
}

// Complete implements store.Engine.
func (e *Engine) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	c.Response = e.seal(id, c.Response)
	return e.Engine.Complete(ctx, id, token, c)
}

// Resolve implements store.Engine.
func (e *Engine) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	if r.Completion != nil {
		sealed := *r.Completion
		sealed.Response = e.seal(id, sealed.Response)
		r.Completion = &sealed
	}
	return e.Engine.Resolve(ctx, id, token, newToken, r)
}

// Claim implements store.Engine.
func (e *Engine) Claim(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	won, held, err = e.Engine.Claim(ctx, draft)
	if err == nil && held != nil {
		err = e.open(held)
	}
	if err != nil {
		return false, nil, err
	}
	return won, held, nil
}

// Read implements store.Engine.
func (e *Engine) Read(ctx context.Context, id store.Identity) (*store.Record, error) {
	record, err := e.Engine.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := e.open(record); err != nil {
		return nil, err
	}
	return record, nil
}

func (e *Engine) seal(id store.Identity, r *store.Response) *store.Response {
	ring := e.keys.Load()
	if r == nil || ring.first == "" {
		return r
	}
	header := store.EncodeHeader(r.Header)
	plain := binary.AppendUvarint(nil, uint64(len(header)))
	plain = append(append(plain, header...), r.Body...)
	aead := ring.keys[ring.first]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	_, _ = rand.Read(nonce) // never fails, see crypto/rand
	return &store.Response{
		Header: http.Header{Header: {ring.first}},
		Body:   aead.Seal(nonce, nonce, plain, bound(id, ring.first)),
	}
}

// open puts the response that was sealed in its place.
func (e *Engine) open(record *store.Record) error {
	if record.Response == nil {
		return nil
	}
	keyIDs, sealed := record.Response.Header[Header]
	if !sealed {
		return nil // from before the keys
	}
	corrupt := func(detail string, err error) error {
		return &store.CorruptError{Detail: "sealed response: " + detail, Err: err}
	}
	if len(keyIDs) != 1 {
		return corrupt("no key id", nil)
	}
	aead := e.keys.Load().keys[keyIDs[0]]
	body := record.Response.Body
	if aead == nil {
		return corrupt(fmt.Sprintf("key %q is not configured any more", keyIDs[0]), nil)
	}
	if len(body) < aead.NonceSize() {
		return corrupt("too short", nil)
	}
	plain, err := aead.Open(nil, body[:aead.NonceSize()], body[aead.NonceSize():], bound(record.Identity, keyIDs[0]))
	if err != nil {
		return corrupt("changed, or of another record", err)
	}
	length, n := binary.Uvarint(plain)
	if n <= 0 || length > uint64(len(plain)-n) {
		return corrupt("length", nil)
	}
	header, err := store.DecodeHeader(plain[n : n+int(length)])
	if err != nil {
		return corrupt("header", err)
	}
	record.Response = &store.Response{Header: header, Body: plain[n+int(length):]}
	return nil
}

// bound is the additional data: each part with its length, so that no two
// identities have the same.
func bound(id store.Identity, keyID string) []byte {
	var data []byte
	for _, part := range []string{"idempotency response 1", keyID, id.Tenant, id.Actor, id.Operation, id.Key} {
		data = binary.AppendUvarint(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}
