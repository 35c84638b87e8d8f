package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzAgainstEncodingJSON compares what is accepted, and what it means, with encoding/json and a strict pass after it.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, s := range []string{
		`{"b":1.0,"a":[1e2,-0,0.001,1e-9,123456789012345678901234567890],"é":"\u00e9\n"}`, `{"a":1,"\u0061":2}`,
		`[1,2`, `"\ud800\udc00\ud800"`, `1e0000000000000000000000001`, `0e9999999999999999999`, ` [ true , false , null ] `,
		`{"a":{"a":{"a":[{},[],""]}}}`, "\"\xff\"", "\ufeff1", `-`, `01`, `"\/\b"`, `{"longer-than-8":1,"longer-than-9":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, wantErr := strictly(text)
		got, err := CanonicalJSON(text)
		if wantErr != nil {
			require.Error(t, err, "encoding/json and the strict pass: %v", wantErr)
			return
		}
		require.NoError(t, err)
		meaning, err := strictly(got)
		require.NoError(t, err, "%s", got)
		require.Equal(t, want, meaning)
	})
}

// plainNumber is the exact value of a number: an integer that does not end in zero, and an exponent.
type plainNumber struct{ digits, exp string }

// strictly decodes with encoding/json and refuses what this package refuses beyond it.
func strictly(text []byte) (any, error) {
	if !json.Valid(text) || !utf8.Valid(text) {
		return nil, fmt.Errorf("not JSON in UTF-8")
	}
	if loneSurrogate(text) {
		return nil, fmt.Errorf("lone surrogate")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return strictValue(d, 0)
}

var escapes = regexp.MustCompile(`(?i)\\u(d[89ab]..)\\u(d[c-f]..)|\\u(d[89a-f]..)|\\.`)

func loneSurrogate(text []byte) bool {
	for _, m := range escapes.FindAllSubmatch(text, -1) {
		if m[3] != nil {
			return true
		}
	}
	return false
}

func strictValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Number:
		return strictNumber(string(v))
	case json.Delim:
		if depth == defaultMaxDepth {
			return nil, fmt.Errorf("too deep")
		}
		if v == '[' {
			list := []any{}
			for d.More() {
				item, err := strictValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, item)
			}
			_, err := d.Token()
			return list, err
		}
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if _, twice := object[name.(string)]; twice {
				return nil, fmt.Errorf("twice")
			}
			if object[name.(string)], err = strictValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return object, err
	}
	return token, nil
}

func strictNumber(s string) (any, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	whole, frac, _ := strings.Cut(mantissa, ".")
	digits, _ := new(big.Int).SetString(whole+frac, 10)
	if digits.Sign() == 0 {
		return plainNumber{"0", "0"}, nil
	}
	if exponent == "" {
		exponent = "0"
	}
	exp, _ := new(big.Int).SetString(exponent, 10)
	if len(new(big.Int).Abs(exp).String()) > 18 {
		return nil, fmt.Errorf("exponent")
	}
	exp.Sub(exp, big.NewInt(int64(len(frac))))
	text := digits.String()
	short := strings.TrimRight(text, "0")
	exp.Add(exp, big.NewInt(int64(len(text)-len(short))))
	return plainNumber{short, exp.String()}, nil
}
