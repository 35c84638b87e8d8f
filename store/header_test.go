package store

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeaderComesBackAsItWas(t *testing.T) {
	everyByte := make([]byte, 0, 256)
	for b := range 256 {
		if b != '\r' && b != '\n' && b != 0 {
			everyByte = append(everyByte, byte(b))
		}
	}
	for name, header := range map[string]http.Header{
		"no lines":                   {},
		"one line":                   {"Location": {"/orders/1"}},
		"repeated lines in order":    {"Link": {"<b>", "<a>", "<b>"}},
		"spelling of names":          {"ETag": {`"1"`}, "etag": {`"2"`}, "Etag": {`"3"`}},
		"empty value":                {"X-Empty": {""}, "X-Empties": {"", ""}},
		"colons and spaces in value": {"X-Time": {" 12: 30: 00 "}, "X-Colon": {": "}},
		"every byte":                 {"X-Bytes": {string(everyByte)}},
		"invalid UTF-8":              {"Content-Disposition": {"attachment; filename=\"caf\xe9\""}},
		"long value":                 {"X-Long": {strings.Repeat("x", 1<<16)}},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := DecodeHeader(EncodeHeader(header))
			require.NoError(t, err)
			require.Equal(t, header, decoded)
		})
	}
}

func TestHeaderBytesAreTheSameForEqualHeaders(t *testing.T) {
	header := http.Header{"B": {"2", "1"}, "A": {"3"}, "a": {"4"}}
	for range 20 { // map order differs from run to run
		require.Equal(t, "A: 3\r\nB: 2\r\nB: 1\r\na: 4\r\n", string(EncodeHeader(header)))
	}
}

func TestHeaderWithoutLinesIsNotNil(t *testing.T) {
	require.NotNil(t, EncodeHeader(nil))
	require.Empty(t, EncodeHeader(nil))

	decoded, err := DecodeHeader(nil)
	require.NoError(t, err)
	require.Equal(t, http.Header{}, decoded)
}

func TestHeaderValueCannotAddALine(t *testing.T) {
	header := http.Header{"X-Note": {"a\r\nSet-Cookie: session=1", "b\nc", "d\re", "f\x00g"}}

	decoded, err := DecodeHeader(EncodeHeader(header))
	require.NoError(t, err)
	require.Equal(t, http.Header{"X-Note": {"a  Set-Cookie: session=1", "b c", "d e", "f g"}}, decoded)
}

func TestHeaderNameThatNoClientSeesIsLeftOut(t *testing.T) {
	header := http.Header{
		"":                     {"empty"},
		"X Y":                  {"space"},
		"Trailer:X-Sum":        {"net/http's mark of a trailer"},
		"X\r\nSet-Cookie":      {"injected"},
		"Preferences-Applied":  nil,
		"X-Ünicode":            {"not a token"},
		"X-Kept!#$%&'*+-.^_`|": {"token"},
	}
	decoded, err := DecodeHeader(EncodeHeader(header))
	require.NoError(t, err)
	require.Equal(t, http.Header{"X-Kept!#$%&'*+-.^_`|": {"token"}}, decoded)
}

func TestUnreadableHeaderIsAnError(t *testing.T) {
	for name, encoded := range map[string]string{
		"no end of line":     "A: 1",
		"bare LF":            "A: 1\n",
		"LF in value":        "A: 1\nB: 2\r\n",
		"CR in value":        "A: 1\rB\r\n",
		"NUL in value":       "A: \x00\r\n",
		"no colon":           "A\r\n",
		"no space":           "A:1\r\n",
		"no name":            ": 1\r\n",
		"space in name":      "A B: 1\r\n",
		"empty line":         "A: 1\r\n\r\n",
		"cut in second line": "A: 1\r\nB: 2\r",
		"JSON":               `{"A":["1"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			header, err := DecodeHeader([]byte(encoded))
			require.Error(t, err)
			require.Nil(t, header)
		})
	}
}

func FuzzHeaderBytes(f *testing.F) {
	f.Add([]byte("A: 1\r\nA: 2\r\nb: \xff\r\n"))
	f.Add([]byte("A: 1\n"))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		header, err := DecodeHeader(encoded)
		if err != nil {
			return
		}
		again, err := DecodeHeader(EncodeHeader(header))
		require.NoError(t, err)
		require.Equal(t, header, again)
	})
}
