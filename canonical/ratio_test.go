package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"
)

// BenchmarkRatio takes turns between the fingerprint and what it is compared with, and reports the quotients of the
// shortest times: on a machine that is busy with other work, the shortest of many is the one that was not disturbed.
//
// Goals: x-sha256 at most 4, and of encoding/json at least 5.
func BenchmarkRatio(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			body := order(s.size)
			p, r := mustCompile(b, Rules{}), jsonRequest(body)
			batch := max(1, 64<<10/s.size)
			shortest := func(old time.Duration, f func()) time.Duration {
				begin := time.Now()
				for range batch {
					f()
				}
				took := time.Since(begin) / time.Duration(batch)
				if old == 0 || took < old {
					return took
				}
				return old
			}
			var plain, ours, theirs time.Duration
			for b.Loop() {
				plain = shortest(plain, func() { sha256.Sum256(body) })
				ours = shortest(ours, func() {
					if _, err := p.Fingerprint(r); err != nil {
						b.Fatal(err)
					}
				})
				theirs = shortest(theirs, func() {
					var v any
					d := json.NewDecoder(bytes.NewReader(body))
					d.UseNumber()
					if err := d.Decode(&v); err != nil {
						b.Fatal(err)
					}
					if _, err := json.Marshal(v); err != nil {
						b.Fatal(err)
					}
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(plain), "sha256-ns")
			b.ReportMetric(float64(ours), "fingerprint-ns")
			b.ReportMetric(float64(ours)/float64(plain), "x-sha256")
			b.ReportMetric(float64(theirs)/float64(ours), "times-faster-than-json")
		})
	}
}
