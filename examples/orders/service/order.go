package service

import (
	"bytes"
	"encoding/json"
	"time"
)

// Order is the business object, as it is answered and as it is kept. It carries no time, so that what a walk-through
// prints is the same each time.
type Order struct {
	ID            string          `json:"id"`
	RequisitionNo string          `json:"requisition_no,omitempty"`
	ClientRef     string          `json:"client_ref,omitempty"` // header X-Client-Reference
	Ref           string          `json:"ref,omitempty"`        // the body's member ref
	Item          string          `json:"item"`
	Amount        json.RawMessage `json:"amount"` // as it was sent: no float touches it
	Currency      string          `json:"currency"`
	Status        string          `json:"status"`
	Version       int             `json:"version"` // 1, and one more with each change
}

// newOrder is what an empty body asks for.
func newOrder() Order {
	return Order{Item: "unspecified", Amount: json.RawMessage("0"), Currency: "CNY", Status: "open", Version: 1}
}

// members are a body's top-level members, undecoded.
type members map[string]json.RawMessage

// text is a member as a text: a string's content, anything else as it was written. Null is no text.
func (m members) text(name string) string {
	raw := m[name]
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func (m members) has(name string) bool {
	raw, ok := m[name]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// changeable are the members of a body that end up in an order, both when it is made and when it is changed.
var changeable = []string{"requisition_no", "item", "amount", "currency", "status"}

// pick keeps what can change an order.
func (m members) pick() members {
	picked := members{}
	for _, name := range changeable {
		if m.has(name) {
			picked[name] = m[name]
		}
	}
	return picked
}

func (o *Order) set(m members) {
	for name := range m.pick() {
		switch name {
		case "requisition_no":
			o.RequisitionNo = m.text(name)
		case "item":
			o.Item = m.text(name)
		case "amount":
			o.Amount = m[name]
		case "currency":
			o.Currency = m.text(name)
		case "status":
			o.Status = m.text(name)
		}
	}
}

// Execution is a write that arrived. Its order is known only once it is committed, and stays empty if it never is.
type Execution struct {
	N              int       `json:"n"` // counted from 1
	At             time.Time `json:"at"`
	Method         string    `json:"method"`
	Path           string    `json:"path"`
	Reference      string    `json:"reference"`
	AcceptEncoding string    `json:"accept_encoding"`
	ContentType    string    `json:"content_type,omitempty"`
	IdempotencyKey bool      `json:"idempotency_key"` // whether the request carried one, which is all that is noticed of it
	BodyBytes      int       `json:"body_bytes"`
	BodySHA256     string    `json:"body_sha256"` // of the bytes as they arrived, before any decoding
	Fault          string    `json:"fault,omitempty"`
	Order          string    `json:"order,omitempty"`
}

// Stats are the counts.
type Stats struct {
	Executions          int            `json:"executions"`
	Orders              int            `json:"orders"`
	Changes             int            `json:"changes"`
	Incomplete          int            `json:"incomplete"` // writes whose body broke off; not executions
	ByReference         map[string]int `json:"by_reference"`
	OrdersByReference   map[string]int `json:"orders_by_reference"`
	IdempotencyKeysSeen int            `json:"idempotency_keys_seen"`
	AcceptEncoding      map[string]int `json:"accept_encoding"` // executions by the Accept-Encoding they came with
}
