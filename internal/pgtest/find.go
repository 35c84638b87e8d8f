package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// environment names the variable that leads to a server of the tester's own.
const environment = "IDEMPOTENCY_TEST_DSN"

const howToInstall = `these tests need PostgreSQL 13 or newer. Do one of these:
  - install it:         apt-get install postgresql    (or: dnf install postgresql-server, brew install postgresql@17)
  - point to a server:  export ` + environment + `=postgres://user:password@127.0.0.1:5432/postgres
                        (its user may create databases and roles)
  - allow downloads from repo1.maven.org
What was tried:`

// findServer follows the order that the package comment promises.
func findServer() (*server, error) {
	if dsn := os.Getenv(environment); dsn != "" {
		return &server{dsn: dsn, stop: func() {}}, nil
	}
	var tried []error
	for _, bin := range installed() {
		s, err := startOf(func(string) (string, error) { return bin, nil })
		if err == nil {
			return s, nil
		}
		tried = append(tried, fmt.Errorf("%s: %w", bin, err))
	}
	s, err := startOf(download)
	if err == nil {
		return s, nil
	}
	tried = append(tried, fmt.Errorf("download: %w", err))
	return nil, fmt.Errorf("%s\n%w", howToInstall, errors.Join(tried...))
}

// startOf makes a directory for a server and starts it there, of the programs
// whose place is asked for. Between finding a free port and taking it, another
// process may take it: then all begins anew.
func startOf(programs func(dir string) (bin string, err error)) (*server, error) {
	const tries = 3
	var last error
	for range tries {
		dir, err := temporaryDirectory()
		if err != nil {
			return nil, err
		}
		bin, err := programs(dir)
		if err == nil {
			var s *server
			if s, err = start(dir, bin); err == nil {
				return s, nil
			}
		}
		_ = os.RemoveAll(dir)
		if last = err; !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, last
}

// installed lists the directories that hold PostgreSQL's programs, best first:
// what the tester's PATH and pg_config say, then where systems put them.
func installed() []string {
	var dirs []string
	if postgres, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(postgres))
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                        // Red Hat, packages of postgresql.org
		"/usr/libexec/postgresql*",                                // Alpine
		"/usr/local/pgsql*/bin",                                   // built from source
		"/usr/local/postgresql*/bin",                              //
		"/opt/homebrew/opt/postgresql*/bin",                       // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",                          // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",          // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
	} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		slices.SortFunc(found, func(a, b string) int {
			return cmp.Compare(version(b), version(a))
		})
		dirs = append(dirs, found...)
	}

	var usable []string
	for _, dir := range dirs {
		if !slices.Contains(usable, dir) && holdsPrograms(dir) {
			usable = append(usable, dir)
		}
	}
	return usable
}

var digits = regexp.MustCompile(`\d+`)

// version is the number in a path such as /usr/lib/postgresql/17/bin.
func version(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}

func holdsPrograms(dir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, program)); err != nil {
			return false
		}
	}
	return true
}

// download uses embedded-postgres for the download alone. It cannot be asked for
// that, so it is told to start a server: as root that fails, since PostgreSQL
// refuses root, but by then the programs are there. The server that the tests
// use is started like every other, as an unprivileged user and under a
// supervisor.
//
// The archive is kept in the tester's home. What is unpacked of it must be where
// that unprivileged user can read it, and goes when the server goes.
func download(dir string) (bin string, err error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	programs := filepath.Join(dir, "programs")
	log := new(strings.Builder)
	embedded := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Port(port).
		RuntimePath(filepath.Join(dir, "runtime")).
		BinariesPath(programs).
		Logger(log))
	if err = embedded.Start(); err == nil {
		err = embedded.Stop()
	}
	if bin = filepath.Join(programs, "bin"); holdsPrograms(bin) {
		return bin, nil
	}
	return "", fmt.Errorf("%w\n%s", err, log)
}
