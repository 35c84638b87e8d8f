package pgtest

// Start gives a program that is no test a server of its own, in the same way: its
// connection string, for a user who may create databases, and how to stop it.
func Start() (dsn string, stop func(), err error) {
	s, err := findServer()
	if err != nil {
		return "", nil, err
	}
	return s.dsn, s.stop, nil
}
