package canonical

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// number is a JSON number that a property may spell in several ways.
type number struct {
	digits *big.Int
	exp    int
}

type member struct {
	name  string
	value any
}

type object []member

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(0, 12, -1), rapid.StringMatching(`[a-c]{0,3}`), rapid.StringMatching(`prefix-12[ab]{0,2}`),
		rapid.SampledFrom([]string{"\x00", "😀", "\u2028", "\"\\/", "\ufeff", strings.Repeat("long ", 500)}))
}

func genValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return genText().Draw(t, "text")
		case 1:
			n := big.NewInt(rapid.Int64().Draw(t, "digits"))
			if rapid.Bool().Draw(t, "long") {
				n.Mul(n, n).Mul(n, n)
			}
			return number{n, rapid.IntRange(-30, 30).Draw(t, "exp")}
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return nil
		case 4:
			return rapid.SliceOfN(genValue(depth-1), 0, 6).Draw(t, "array")
		default:
			names := rapid.SliceOfNDistinct(genText(), 0, 20, rapid.ID[string]).Draw(t, "names")
			o := make(object, len(names))
			for i, name := range names {
				o[i] = member{name, genValue(depth-1).Draw(t, "value")}
			}
			return o
		}
	})
}

// spell writes a value as JSON in one of its spellings, drawn at random.
func spell(t *rapid.T, v any) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "space") }
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return spellText(t, v)
	case number:
		return spellNumber(t, v)
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = space() + spell(t, v[i]) + space()
		}
		return "[" + strings.Join(items, ",") + "]"
	case object:
		items := make([]string, len(v))
		for i, m := range rapid.Permutation(v).Draw(t, "order") {
			items[i] = space() + spellText(t, m.name) + space() + ":" + space() + spell(t, m.value) + space()
		}
		return "{" + strings.Join(items, ",") + "}"
	}
	panic("no such value")
}

func spellText(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	escape := rapid.IntRange(0, 3).Draw(t, "escapes")
	for i, r := range s {
		switch {
		case r < 0x20 || r == '"' || r == '\\' || escape > 0 && i%escape == 0:
			if r > 0xFFFF {
				fmt.Fprintf(&b, `\u%04x\u%04X`, 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func spellNumber(t *rapid.T, n number) string {
	sign, digits, exp := "", n.digits.String(), n.exp
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	zeros := rapid.IntRange(0, 3).Draw(t, "zeros")
	digits, exp = digits+strings.Repeat("0", zeros), exp-zeros
	if n.digits.Sign() == 0 {
		digits, exp = "0", exp+zeros
	}
	if point := rapid.IntRange(0, len(digits)).Draw(t, "point"); point > 0 && point < len(digits) {
		exp += len(digits) - point
		digits = digits[:point] + "." + digits[point:]
	} else if point == 0 && digits != "0" {
		exp += len(digits)
		digits = "0." + digits
	}
	if exp == 0 && rapid.Bool().Draw(t, "plain") {
		return sign + digits
	}
	return sign + digits + rapid.SampledFrom([]string{"e", "E"}).Draw(t, "e") + strconv.Itoa(exp)
}

func TestSpellingNeverChangesTheFingerprint(t *testing.T) {
	p := mustCompile(t, Rules{})
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(3).Draw(t, "value")
		a, b := spell(t, v), spell(t, v)
		x, err := p.Fingerprint(jsonRequest([]byte(a)))
		require.NoError(t, err, a)
		y, err := p.Fingerprint(jsonRequest([]byte(b)))
		require.NoError(t, err, b)
		require.Equal(t, x, y, "%s\n%s", a, b)
	})
}

// change alters one thing somewhere in v: a scalar, a name, the order of an array, a type, the presence of a value.
func change(t *rapid.T, v any) any {
	switch v := v.(type) {
	case nil:
		return rapid.SampledFrom([]any{false, "", "null", number{new(big.Int), 0}, []any{}, object{}}).Draw(t, "instead of null")
	case bool:
		return rapid.SampledFrom([]any{!v, strconv.FormatBool(v), nil}).Draw(t, "instead of a bool")
	case string:
		return rapid.SampledFrom([]any{v + "x", v + "\x00", v + " ", []any{v}, object{{v, nil}}, nil}).Draw(t, "instead of a text")
	case number:
		more := number{new(big.Int).Add(v.digits, big.NewInt(1)), v.exp}
		return rapid.SampledFrom([]any{more, spellNumber(t, v), []any{v}, nil, true}).Draw(t, "instead of a number")
	case []any:
		if len(v) == 0 || rapid.Bool().Draw(t, "here") {
			return rapid.SampledFrom([]any{append(v[:len(v):len(v)], nil), []any{v}, object{{"", v}}, object{}}).Draw(t, "instead of an array")
		}
		changed := append([]any{}, v...)
		i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
		changed[i] = change(t, v[i])
		return changed
	case object:
		if len(v) == 0 || rapid.Bool().Draw(t, "here") {
			return rapid.SampledFrom([]any{append(v[:len(v):len(v)], member{strings.Repeat("new", 50), nil}), []any{v}, []any{}, nil}).Draw(t, "instead of an object")
		}
		changed := append(object{}, v...)
		i := rapid.IntRange(0, len(v)-1).Draw(t, "member")
		if rapid.Bool().Draw(t, "name") {
			changed[i].name += strings.Repeat("other", 60)
		} else {
			changed[i].value = change(t, v[i].value)
		}
		return changed
	}
	panic("no such value")
}

func TestAnyChangeChangesTheFingerprint(t *testing.T) {
	p := mustCompile(t, Rules{})
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(3).Draw(t, "value")
		a, b := spell(t, v), spell(t, change(t, v))
		x, err := p.Fingerprint(jsonRequest([]byte(a)))
		require.NoError(t, err, a)
		y, err := p.Fingerprint(jsonRequest([]byte(b)))
		require.NoError(t, err, b)
		require.NotEqual(t, x.Sum, y.Sum, "%s\n%s", a, b)
		require.NotEmpty(t, p.Match(x, y).Parts)
	})
}

func TestOrderOfAnArrayCounts(t *testing.T) {
	p := mustCompile(t, Rules{})
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfNDistinct(rapid.Int(), 2, 300, rapid.ID[int]).Draw(t, "items")
		i := rapid.IntRange(1, len(items)-1).Draw(t, "i")
		a, _ := json.Marshal(items)
		items[0], items[i] = items[i], items[0]
		b, _ := json.Marshal(items)
		x, err := p.Fingerprint(jsonRequest(a))
		require.NoError(t, err)
		y, err := p.Fingerprint(jsonRequest(b))
		require.NoError(t, err)
		require.NotEqual(t, x.Sum, y.Sum)
	})
}

func TestCanonicalFormOfTheCanonicalFormIsItself(t *testing.T) {
	p := mustCompile(t, Rules{})
	rapid.Check(t, func(t *rapid.T) {
		text := spell(t, genValue(3).Draw(t, "value"))
		once, err := CanonicalJSON([]byte(text))
		require.NoError(t, err, text)
		twice, err := CanonicalJSON(once)
		require.NoError(t, err, text)
		require.Equal(t, string(once), string(twice))

		x, err := p.Fingerprint(jsonRequest([]byte(text)))
		require.NoError(t, err)
		y, err := p.Fingerprint(jsonRequest(once))
		require.NoError(t, err)
		require.Equal(t, x, y)

		whole, err := p.Canonical(jsonRequest([]byte(text)))
		require.NoError(t, err)
		again, err := CanonicalJSON(whole)
		require.NoError(t, err)
		require.Equal(t, string(whole), string(again))
	})
}
