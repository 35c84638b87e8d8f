//go:build !unix

package pgtest

import (
	"errors"
	"os"
)

var errPortTaken = errors.New("port is taken")

// start needs a Unix: its supervisor is a shell script.
func start(dir, bin string) (*server, error) {
	return nil, errors.New("on this system, set " + environment)
}

func temporaryDirectory() (string, error) { return os.MkdirTemp("", "idempotency-postgres-") }

func freePort() (uint32, error) { return 5432, nil }
