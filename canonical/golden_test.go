package canonical

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var addGolden = flag.Bool("add-golden", false, "fill in the fingerprints that golden.tsv lacks; it never changes one")

// TestAlgorithm1NeverChanges holds the algorithm to what records in production were made with. If it fails, the change
// needs a new algorithm beside this one.
func TestAlgorithm1NeverChanges(t *testing.T) {
	const path = "testdata/golden.tsv"
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(string(file)))
	for n := 1; lines.Scan(); n++ {
		cells := strings.Split(lines.Text(), "\t")
		if strings.HasPrefix(cells[0], "#") || len(cells) < 2 {
			out.WriteString(lines.Text() + "\n")
			continue
		}
		var rules Rules
		require.NoError(t, json.Unmarshal([]byte(cells[0]), &rules))
		rules.MemberKey = []byte("golden")
		fp, err := mustCompile(t, rules).Fingerprint(cell(t, cells[1]))
		require.NoError(t, err, "line %d", n)
		got := []string{hex.EncodeToString(fp.Sum[:]), hex.EncodeToString(fp.Members)}
		if len(cells) == 2 && *addGolden {
			cells = append(cells, got...)
		}
		require.Equal(t, cells[2:], got, "line %d", n)
		out.WriteString(strings.Join(cells, "\t") + "\n")
	}
	if *addGolden {
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
}
