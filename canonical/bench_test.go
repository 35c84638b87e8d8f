package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// order returns an ordinary order of about that many bytes: compact JSON, as programs send it, with its members in the
// order of a programmer and not of the alphabet.
func order(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"requisition_no":"PR-2025-000184","customer":{"name":"上海精密仪器有限公司","tax_id":"91310000MA1K35XXXX","contact":"purchasing@example.com"},` +
		`"currency":"CNY","total":184220.50,"urgent":false,"requested_at":"2025-03-14T09:26:53Z","delivery":{"street":"1288 Century Avenue","city":"Shanghai","postcode":"200120","country":"CN"},"note":null,"items":[`)
	for i := 0; b.Len() < size-150; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"HX-%05d","title":"Hex bolt M%d x %d stainless","quantity":%d,"unit_price":%d.%02d,"tax_rate":0.13,"taxable":true,"warehouse":"SH-0%d"}`,
			i*37%100000, i%12+3, i%80+10, i%500+1, i%900+1, i*7%100, i%4)
	}
	b.WriteString(`]}`)
	b.WriteString(strings.Repeat(" ", max(0, size-b.Len()))) // at most a few bytes
	return b.Bytes()
}

func jsonRequest(body []byte) *Request {
	return &Request{Method: "POST", Path: "/orders", Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func mustCompile(t testing.TB, r Rules) *Policy {
	t.Helper()
	p, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var sizes = []struct {
	name string
	size int
}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}}

// BenchmarkFingerprint measures the fingerprint beside the plain hash of the same bytes and beside what it replaces.
func BenchmarkFingerprint(b *testing.B) {
	for _, s := range sizes {
		body := order(s.size)
		b.Run(s.name+"/sha256", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				sha256.Sum256(body)
			}
		})
		for _, v := range []struct {
			name  string
			rules Rules
		}{
			{"fingerprint", Rules{}},
			{"fingerprint without members", Rules{NoMembers: true}},
			{"fingerprint with rules", Rules{
				Exclude: []string{"requested_at", "items.#.note"}, Sets: []string{"items"},
				Defaults: []Default{{Path: "items.#.discount", Value: []byte("0")}},
				Money:    []Money{{"items.#.unit_price", "currency"}},
			}},
		} {
			p, r := mustCompile(b, v.rules), jsonRequest(body)
			b.Run(s.name+"/"+v.name, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.Fingerprint(r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(s.name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var v any
				d := json.NewDecoder(bytes.NewReader(body))
				d.UseNumber()
				if err := d.Decode(&v); err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
