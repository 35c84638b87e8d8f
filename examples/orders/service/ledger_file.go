package service

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// openLedger opens or makes the file and replays its lines.
func openLedger(path string) (*ledger, error) {
	if path == "" {
		return nil, errors.New("opening the ledger: no file named")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	l := &ledger{
		file:    file,
		filling: new(batch),
		byID:    map[string]int{},
		counts: Stats{
			ByReference:       map[string]int{},
			OrdersByReference: map[string]int{},
			AcceptEncoding:    map[string]int{},
		},
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the ledger %s: %w", path, err), file.Close())
	}
	return l, nil
}

func (l *ledger) recover() error {
	// Two services on one file would each cut off what the other is just writing.
	if err := lockFile(l.file); err != nil {
		return err
	}
	whole, err := l.replay()
	if err != nil {
		return err
	}
	if err := cutOff(l.file, whole); err != nil {
		return err
	}
	l.numbers.executions, l.numbers.orders = len(l.executions), len(l.orders)
	return syncDir(filepath.Dir(l.file.Name()))
}

// replay applies every whole line, and returns the size of the file up to the end of the last one. What follows it has
// no line end: a crash cut it short before it was synced, so nobody was ever told of it. A damaged line that does have
// its end was acknowledged once, and is an error: to go on without it would be to forget it.
func (l *ledger) replay() (whole int64, err error) {
	lines := bufio.NewReader(l.file)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, fmt.Errorf("line %d is damaged: %w", n, err)
		}
		if err := l.apply(&e); err != nil {
			return 0, fmt.Errorf("line %d is damaged: %w", n, err)
		}
		whole += int64(len(line))
	}
}

func cutOff(file *os.File, size int64) error {
	info, err := file.Stat()
	if err != nil || info.Size() == size {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return fmt.Errorf("cutting off a torn last line: %w", err)
	}
	return file.Sync()
}

// close lets a flush that is under way end, and no other begin.
func (l *ledger) close() error {
	l.disk.Lock()
	defer l.disk.Unlock()
	l.Lock()
	defer l.Unlock()
	if l.failed == nil {
		l.failed = errClosed
	}
	return errors.Join(unlockFile(l.file), l.file.Close())
}
