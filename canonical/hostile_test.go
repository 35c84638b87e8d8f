package canonical

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mebibyte = 1 << 20

// hostile are bodies of 1 MiB that would be expensive for a careless reader.
var hostile = []struct {
	name string
	body func() string
}{
	{"open arrays", func() string { return strings.Repeat("[", mebibyte) }},
	{"deep again and again", func() string {
		one := strings.Repeat(`[`, 127) + strings.Repeat(`]`, 127)
		return "[" + strings.Repeat(one+",", mebibyte/len(one)) + "0]"
	}},
	{"deep objects out of order", func() string {
		one := strings.Repeat(`{"b":0,"a":`, 127) + "0" + strings.Repeat(`}`, 127)
		return "[" + strings.Repeat(one+",", mebibyte/len(one)) + "0]"
	}},
	{"one long number", func() string { return strings.Repeat("7", mebibyte) }},
	{"one long number of zeros", func() string { return "1" + strings.Repeat("0", mebibyte-2) + "1" }},
	{"one long fraction", func() string { return "0." + strings.Repeat("0", mebibyte-3) + "1" }},
	{"one long exponent", func() string { return "1e" + strings.Repeat("0", mebibyte-3) + "7" }},
	{"one refused exponent", func() string { return "1e" + strings.Repeat("9", mebibyte-2) }},
	{"50,000 members backwards", func() string { return wide(50_000, func(i int) int { return 50_000 - i }) }},
	{"50,000 members shuffled", func() string {
		order := rand.New(rand.NewPCG(1, 2)).Perm(50_000)
		return wide(50_000, func(i int) int { return order[i] })
	}},
	{"the same name at the end", func() string {
		s := wide(50_000, func(i int) int { return i })
		return s[:len(s)-1] + `,"member-000000":1}`
	}},
	{"long names that begin alike", func() string {
		var s strings.Builder
		s.WriteString(`{"":0`)
		for i := range 1000 {
			fmt.Fprintf(&s, `,"%s%04d":0`, strings.Repeat("n", 1030), 1000-i)
		}
		return s.String() + "}"
	}},
	{"names that part one after another", func() string {
		var s strings.Builder
		s.WriteString(`{"":0`)
		for i := range 500 {
			fmt.Fprintf(&s, `,"%sx":0`, strings.Repeat("n", 8*(i*131%500)))
		}
		return s.String() + "}"
	}},
	{"names that end in zero bytes", func() string {
		var s strings.Builder
		s.WriteString(`{"z":0`)
		for i := range 500 {
			fmt.Fprintf(&s, `,"n%s":0`, strings.Repeat(`\u0000`, i*131%500))
		}
		return s.String() + "}"
	}},
	{"names of escapes", func() string {
		var s strings.Builder
		s.WriteString(`{"":0`)
		for i := range mebibyte / 32 {
			fmt.Fprintf(&s, `,"\u006e\u006e%016x":0`, i*7919%65536)
		}
		return s.String() + "}"
	}},
	{"escapes", func() string { return `"` + strings.Repeat(`\u00e9`, mebibyte/6) + `"` }},
	{"short escapes", func() string { return `"` + strings.Repeat(`\n`, mebibyte/2) + `"` }},
	{"surrogates", func() string { return `"` + strings.Repeat(`\ud83d\ude00`, mebibyte/12) + `"` }},
	{"empty objects", func() string { return "[" + strings.Repeat("{},", mebibyte/3) + "0]" }},
	{"white space", func() string { return strings.Repeat(" ", mebibyte-1) + "0" }},
	{"quotes without an end", func() string { return `"` + strings.Repeat(`\"`, mebibyte/2) }},
}

func wide(n int, at func(int) int) string {
	var s strings.Builder
	s.WriteByte('{')
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `"member-%06d":1`, at(i))
	}
	return s.String() + "}"
}

// BenchmarkHostile takes turns with an ordinary body of the same size and reports the quotient of the shortest times.
// Goal: x-ordinary below 10.
func BenchmarkHostile(b *testing.B) {
	ordinary := jsonRequest(order(mebibyte))
	form := &Request{Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: []byte(strings.Repeat("a=1&b&%41=+&", 3333) + "c=" + strings.Repeat("%41", mebibyte/3))}
	policies := map[string]*Policy{
		"": mustCompile(b, Rules{}),
		" with rules": mustCompile(b, Rules{
			Exclude: []string{"member-000001", "0.b.b"}, Sets: []string{"m"}, Defaults: []Default{{Path: "member-000002", Value: []byte("0")}},
			Money: []Money{{"amount", "currency"}, {"0.x", "0.a.a.a.a.y"}},
		}),
	}
	run := func(name string, r *Request) {
		for suffix, p := range policies {
			b.Run(name+suffix, func(b *testing.B) {
				var usual, worst time.Duration
				for b.Loop() {
					begin := time.Now()
					_, _ = p.Fingerprint(ordinary)
					middle := time.Now()
					_, _ = p.Fingerprint(r)
					end := time.Now()
					if d := middle.Sub(begin); usual == 0 || d < usual {
						usual = d
					}
					if d := end.Sub(middle); worst == 0 || d < worst {
						worst = d
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(worst), "shortest-ns")
				b.ReportMetric(float64(worst)/float64(usual), "x-ordinary")
			})
		}
	}
	for _, v := range hostile {
		run(v.name, jsonRequest([]byte(v.body())))
	}
	run("form", form)
}

func TestManyMembersInAnyOrderAreOneObject(t *testing.T) {
	p := mustCompile(t, Rules{})
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{few, few + 1, 100, 1000} {
		names := make([]string, n)
		for i := range names {
			// Few letters and lengths around eight, so that many names begin, and some end, alike.
			name := make([]string, random.IntN(20))
			for k := range name {
				name[k] = []string{"a", "b", `\u0000`, "é"}[random.IntN(4)*random.IntN(2)]
			}
			names[i] = fmt.Sprintf(`"%s%d":%d`, strings.Join(name, ""), i, i)
		}
		var want Fingerprint
		for turn := range 20 {
			random.Shuffle(n, func(i, k int) { names[i], names[k] = names[k], names[i] })
			body := []byte("{" + strings.Join(names, ",") + "}")
			got, err := p.Fingerprint(jsonRequest(body))
			require.NoError(t, err)
			if turn == 0 {
				want = got
			}
			require.Equal(t, want, got)
			text, err := CanonicalJSON(body)
			require.NoError(t, err)
			var again any
			require.NoError(t, json.Unmarshal(text, &again))
			plain, err := json.Marshal(again) // sorts names by their bytes, too
			require.NoError(t, err)
			require.JSONEq(t, string(plain), string(text))
			require.Equal(t, strings.ReplaceAll(string(plain), "\\u0000", ""), strings.ReplaceAll(string(text), "\\u0000", ""))

			_, err = p.Fingerprint(jsonRequest([]byte("{" + strings.Join(names, ",") + "," + names[turn%n] + "}")))
			require.ErrorContains(t, err, "twice")
		}
	}
}

func TestPolicyServesManyAtOnce(t *testing.T) {
	p := mustCompile(t, Rules{Money: []Money{{"total", "currency"}}, Sets: []string{"items"}})
	want, err := p.Fingerprint(jsonRequest(order(4000)))
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if got, err := p.Fingerprint(jsonRequest(order(4000))); err != nil || got.Sum != want.Sum {
					t.Errorf("another fingerprint: %v", err)
				}
				_, _ = p.Fingerprint(jsonRequest([]byte(`{"total":1}`)))
			}
		})
	}
	all.Wait()
}

func TestHostileBodiesAreAnswered(t *testing.T) {
	p := mustCompile(t, Rules{})
	for _, v := range hostile {
		_, err := p.Fingerprint(jsonRequest([]byte(v.body())))
		switch v.name {
		case "open arrays", "one refused exponent", "the same name at the end", "quotes without an end":
			require.Error(t, err, v.name)
		default:
			require.NoError(t, err, v.name)
		}
	}
	form := &Request{Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: []byte(strings.Repeat("a&", mostPairs))}
	_, err := p.Fingerprint(form)
	require.NoError(t, err)
	form.Body = append(form.Body, 'a')
	_, err = p.Fingerprint(form)
	require.ErrorContains(t, err, "more than 10000 fields")
}

// TestMemoryOfAnOrdinaryBody counts all that a new encoder takes for its first body: at most a tenth of the body.
func TestMemoryOfAnOrdinaryBody(t *testing.T) {
	for name, body := range map[string][]byte{
		"an order of 1 MiB":        order(mebibyte),
		"a document in one text":   []byte(`{"file":"` + strings.Repeat("base64++", mebibyte/8) + `"}`),
		"a text of escapes":        []byte(`{"text":"` + strings.Repeat(`\n\u00e9`, mebibyte/8) + `"}`),
		"a list of a million ones": []byte(`[` + strings.Repeat("1,", mebibyte/2) + `1]`),
	} {
		r := jsonRequest(body)
		var before, after runtime.MemStats
		p := mustCompile(t, Rules{})
		runtime.ReadMemStats(&before)
		_, err := p.Fingerprint(r)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		taken := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes for %d, %.1f %%", name, taken, len(body), 100*float64(taken)/float64(len(body)))
		require.LessOrEqual(t, taken, uint64(len(body)/10), name)
	}
}

func TestAllocationsDoNotGrowWithTheBody(t *testing.T) {
	p := mustCompile(t, Rules{})
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		r := jsonRequest(order(size))
		got := testing.AllocsPerRun(20, func() { _, _ = p.Fingerprint(r) })
		require.LessOrEqual(t, got, 10.0, "at %d bytes", size) // one; the race detector makes a pool forget now and then
	}
}
