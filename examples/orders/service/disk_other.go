//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package service

import "os"

// lockFile does nothing where there is no flock: there, starting two services on one file is on you.
func lockFile(*os.File) error {
	return nil
}

func unlockFile(*os.File) error {
	return nil
}

// syncDir does nothing where a directory cannot be synced.
func syncDir(string) error {
	return nil
}
