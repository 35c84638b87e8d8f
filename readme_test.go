package idempotency_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/stage"
)

// documents whose curl lines are run, from the first to the last, against the
// Caddyfile that they are about.
var documents = []struct{ document, caddyfile string }{
	{"README.md", "Caddyfile"},
	{"examples/basic-auth/README.md", "examples/basic-auth/Caddyfile"},
}

// TestCurlLinesPrintWhatTheDocumentsSay runs what stands behind each $ in a block
// of the language console and asks for localhost:8080. With IDEMPOTENCY_UPDATE_DOCS=1, it
// writes what they print into the documents instead.
func TestCurlLinesPrintWhatTheDocumentsSay(t *testing.T) {
	client := curl(t)
	for _, d := range documents {
		t.Run(d.document, func(t *testing.T) {
			lines := consoleLines(t, d.document)
			require.NotEmpty(t, lines)

			s, err := stage.Open(t.Context(), stage.Config{Caddyfile: d.caddyfile})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()

			for _, line := range lines {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line.command, "localhost:8080", s.Address))
				cmd.Env = append(os.Environ(), "PATH="+client+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s\n%s", line.command, out)
				if os.Getenv("IDEMPOTENCY_UPDATE_DOCS") != "" {
					update(t, d.document, line, steady(string(out)))
					continue
				}
				require.Equal(t, steady(line.output), steady(string(out)),
					"$ %s\nThe gateway's log:\n%s", line.command, s.Gateway.Log())
			}
		})
	}
}

// line is a command of a document, with what it prints according to the document.
type line struct{ command, output string }

var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

func consoleLines(t *testing.T, document string) (lines []line) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
		for command := range strings.SplitSeq("\n"+block[1], "\n$ ") {
			command, output, _ := cutCommand(command)
			if strings.Contains(command, "localhost:8080") {
				lines = append(lines, line{command, output})
			}
		}
	}
	return lines
}

// cutCommand parts a command, which goes on in the next line after a \, from its output.
func cutCommand(text string) (command, output string, found bool) {
	for end := 0; ; end++ {
		next := strings.IndexByte(text[end:], '\n')
		if next < 0 {
			return text, "", false
		}
		if end += next; !strings.HasSuffix(text[:end], `\`) {
			return text[:end], text[end+1:], true
		}
	}
}

var date = regexp.MustCompile(`(?m)^Date: .*$`)

// steady leaves out what is another each time, and the ends of lines.
func steady(output string) string {
	output = strings.ReplaceAll(output, "\r\n", "\n")
	return strings.TrimRight(date.ReplaceAllString(output, "Date: …"), "\n")
}

// update puts the output behind its command.
func update(t *testing.T, document string, l line, output string) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	before := l.command + "\n" + l.output
	require.Contains(t, string(text), before)
	after := strings.Replace(string(text), before, l.command+"\n"+strings.TrimRight(output, "\n")+"\n", 1)
	require.NoError(t, os.WriteFile(document, []byte(after), 0o644))
}

// curl returns a directory that holds a curl, for the front of the PATH: none where
// the machine has one, and else a stand-in which knows as much of it as the
// documents need.
func curl(t *testing.T) string {
	dir := t.TempDir()
	if _, err := exec.LookPath("curl"); err == nil {
		return dir
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "curl"), "./internal/stage/curl").CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}
