package main

import (
	"os"
	"syscall"
)

// flush is what PostgreSQL and SQLite do on Linux.
func flush(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
