package store

import "context"

// Pin puts a setting beside the records, unless one of its name is there, and
// returns the one that is; see Engine.
func (s *Store) Pin(ctx context.Context, name string, value []byte) (held []byte, err error) {
	err = retry(ctx, func() (err error) {
		held, err = s.engine.Pin(ctx, name, value)
		return err
	})
	return held, err
}
