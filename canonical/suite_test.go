package canonical

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusedBySuiteName are the files of the public JSON parsing suite (github.com/nst/JSONTestSuite) that it says must be
// accepted, and that our rules refuse.
var refusedBySuiteName = map[string]string{
	"y_object_duplicated_key.json":           "twice",
	"y_object_duplicated_key_and_value.json": "twice",
}

// eitherBySuiteName says what becomes of the files that the suite leaves to the parser.
func eitherBySuiteName(name string) (accepted bool) {
	switch {
	case strings.HasPrefix(name, "i_number_"):
		return !strings.Contains(name, "i_number_huge_exp") // more than 18 digits; all others are exact here
	case name == "i_structure_500_nested_arrays.json":
		return false // deeper than 128
	}
	return false // texts that are no characters, other encodings, a byte-order mark
}

// ownSuite teaches the same without the suite's data.
var ownSuite = map[string]string{
	"y_array_null.json": `[null]`, "y_number_exact.json": `[-9223372036854775809.5e-12]`, "y_string_all_escapes.json": `["\"\\\/\b\f\n\r\t\u0000"]`,
	"y_structure_space.json": " \t\r\n[ ]\n", "y_string_del.json": "\"\x7f\"", "y_object_empty_name.json": `{"":0}`,
	"y_string_noncharacter.json": `"\uFDD0"`, "y_structure_lonely_false.json": `false`,
	"y_object_duplicated_key.json": `{"a":"b","a":"c"}`,
	"n_array_missing_value.json":   `[,]`, "n_number_hex.json": `[0x1]`, "n_number_fullwidth_digit.json": `[１]`,
	"n_object_unquoted.json": `{a:1}`, "n_string_raw_tab.json": "[\"\t\"]", "n_structure_nul.json": "[1]\x00",
	"n_structure_open_arrays.json": strings.Repeat("[", 100_000), "n_structure_open_objects.json": strings.Repeat(`[{"":`, 50_000),
	"i_number_huge_exp.json": `[0.4e00669999999999999999999]`, "i_number_beyond_double.json": `[123123e100000]`,
	"i_string_lone_surrogate.json": `["\uDADA"]`, "i_string_latin1.json": "[\"\xe9\"]", "i_structure_bom.json": "\ufeff{}",
	"i_structure_500_nested_arrays.json": strings.Repeat("[", 500) + strings.Repeat("]", 500),
}

func TestParsingSuite(t *testing.T) {
	files := map[string]string{}
	for name, text := range ownSuite {
		files["our own/"+name] = text
	}
	// The suite is not ours, so it is not kept here: a folder that holds its test_parsing can be named.
	if folder := os.Getenv("IDEMPOTENCY_JSON_SUITE"); folder != "" {
		found, err := filepath.Glob(filepath.Join(folder, "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, found, "IDEMPOTENCY_JSON_SUITE names a folder with the suite's files")
		for _, path := range found {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files["suite/"+filepath.Base(path)] = string(text)
		}
	}
	for path, text := range files {
		t.Run(path, func(t *testing.T) {
			name := filepath.Base(path)
			_, err := CanonicalJSON([]byte(text))
			switch reason, refused := refusedBySuiteName[name]; {
			case refused:
				require.ErrorContains(t, err, reason)
			case name[0] == 'y':
				require.NoError(t, err)
			case name[0] == 'n':
				require.Error(t, err)
			case eitherBySuiteName(name):
				require.NoError(t, err)
			default:
				require.Error(t, err)
			}
		})
	}
	t.Logf("%d files", len(files))
}

// TestRFC8785 holds the vectors of the RFC in spirit: where its numbers survive a float64 unchanged, both forms agree.
func TestRFC8785(t *testing.T) {
	for _, v := range []struct{ name, text, want string }{
		{"3.2.2 literals, texts and numbers",
			`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"3.2.3 order, except that it is by code points and not by UTF-16: the emoji comes last",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh","😀":"Emoji: Grinning Face"}`},
		{"appendix B, where a float64 is written with all its digits", `[0,-0,9007199254740992,-9007199254740992,295147905179352830000,1e21,1e-6,1e-7,333333333.3333332]`,
			`[0,0,9007199254740992,-9007199254740992,295147905179352830000,1e+21,0.000001,1e-7,333333333.3333332]`},
		{"beyond a float64 all digits stay", `[9007199254740993,5e-324,1e400,295147905179352825856]`, `[9007199254740993,5e-324,1e+400,295147905179352825856]`},
		{"control characters", `["\u0000\u001f\u007f\u0008\u000c"]`, "[\"\\u0000\\u001f\x7f\\b\\f\"]"},
	} {
		t.Run(v.name, func(t *testing.T) {
			got, err := CanonicalJSON([]byte(v.text))
			require.NoError(t, err)
			require.Equal(t, v.want, string(got))
		})
	}
}
