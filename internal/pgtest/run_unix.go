//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout is long because a loaded machine may be slow; a server that
// cannot start says so at once.
const startTimeout = time.Minute

var errPortTaken = errors.New("port is taken")

// supervise is the shell script that the server runs under; "$1" is the
// directory to remove, the rest the server's command line. Descriptor 3 is the
// reading end of a pipe whose writing end the test process alone holds: cat
// returns when that is closed, whether by stop or because the process is gone.
// (A parent-death signal would do the same on Linux alone, and follows the
// thread, not the process.)
//
// SIGQUIT is PostgreSQL's immediate shutdown. There is nothing to keep.
const supervise = `
dir=$1; shift
"$@" </dev/null 3<&- &
server=$!
{ cat <&3 >/dev/null; kill -QUIT $server; } 2>/dev/null &
wait $server
cd / && rm -rf "$dir"
`

// start makes a database cluster in the directory, and a server over it which
// removes the directory when it ends.
func start(dir, bin string) (*server, error) {
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	passwordFile := filepath.Join(dir, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return nil, err
	}
	if account != nil {
		if err := give(dir, account); err != nil {
			return nil, err
		}
	}

	data := filepath.Join(dir, "data")
	initdb := command(dir, account, filepath.Join(bin, "initdb"),
		"--pgdata="+data, "--username=postgres", "--pwfile="+passwordFile, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}

	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reading.Close() }()

	cmd := command(dir, account, "/bin/sh", "-c", supervise, "supervise", dir,
		filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1",
		"-c", "port="+strconv.Itoa(int(port)),
		"-c", "unix_socket_directories=", // a temporary directory's path may be too long for a socket
		"-c", "max_connections=250")
	cmd.ExtraFiles = []*os.File{reading}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		_ = writing.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s := &server{
		dsn:  fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, port),
		stop: func() { _ = writing.Close(); <-ended },
	}
	if err := s.waitUntilReady(ended, log); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// waitUntilReady returns when the server takes connections. It tells a server
// that died from one that takes its time.
func (s *server) waitUntilReady(ended <-chan struct{}, log *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var last error
	ready := poll(ctx, func() bool {
		select {
		case <-ended:
			cancel()
			return false
		default:
		}
		var conn *pgx.Conn
		if conn, last = pgx.Connect(ctx, s.dsn); last != nil {
			return false
		}
		last = conn.Close(ctx)
		return true
	})
	if ready {
		return nil
	}
	said := make([]byte, 1<<16)
	n, _ := log.ReadAt(said, 0) // the file's name is gone by now
	if strings.Contains(string(said[:n]), "could not bind") {
		return errPortTaken
	}
	return fmt.Errorf("server does not start: %w\n%s", last, said[:n])
}

// command runs in dir, which the account can enter, unlike perhaps the
// directory of the test. It has a process group of its own, so that Ctrl-C ends
// the test, and only through it the server.
func command(dir string, account *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C") // messages in English
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: account}
	return cmd
}

// unprivileged is who runs the server in the place of root, whom PostgreSQL
// refuses; nil if the tester is not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("root may not run PostgreSQL, and there is no user postgres or nobody to run it as")
}

// give makes the account the owner of all that is in the directory, so that it
// can remove it.
func give(dir string, account *syscall.Credential) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(account.Uid), int(account.Gid))
	})
}

// temporaryDirectory makes a directory which other users may enter: root's own
// temporary directory may be closed to the user who runs the server.
func temporaryDirectory() (string, error) {
	parent := os.TempDir()
	if os.Geteuid() == 0 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "idempotency-postgres-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

func freePort() (uint32, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return uint32(listener.Addr().(*net.TCPAddr).Port), nil
}
