//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package service

import (
	"errors"
	"os"
	"syscall"
)

// lockFile refuses a file that another service has open. The kernel lets go of the lock however its holder ends.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another order service has it open")
	}
	return err
}

// unlockFile lets go at once. To close the file is not enough while a child that this process is just starting still
// holds a copy of it.
func unlockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
}

// syncDir makes the name of a new file last; its bytes alone do not help after a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
