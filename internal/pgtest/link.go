package pgtest

import (
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Link is a wire to the server that the test can break. It stands for a
// database that is down, a network that swallows answers, and an
// acknowledgement that is lost after the commit, on a server that other tests
// use meanwhile.
type Link struct {
	DSN string // leads through the link

	listener net.Listener
	network  string
	server   string

	mu       sync.Mutex
	mood     *sync.Cond // signals every change of the fields below
	cut      bool
	held     bool
	lose     string // command tag whose answer is to be lost; "" for none
	lost     int
	accepted int
	open     map[*connection]struct{}
	running  sync.WaitGroup
}

// Wire lays a link to the server of the DSN. It listens on 127.0.0.1 and is
// gone at the end of the test. It reads the protocol, so it goes without TLS.
func Wire(t testing.TB, dsn string) *Link {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port

	l := &Link{
		DSN: change(dsn, map[string]string{
			"host": "127.0.0.1", "port": strconv.Itoa(port), "sslmode": "disable",
		}),
		listener: listener,
		open:     make(map[*connection]struct{}),
	}
	l.mood = sync.NewCond(&l.mu)
	l.network, l.server = pgconn.NetworkAddress(config.Host, config.Port)
	l.running.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.running.Wait()
	})
	return l
}

// Cut ends every connection, and every new one as soon as it is made, until
// Restore. What was held is lost. The server notices as it does when a client's
// machine vanishes: a statement that it is working on goes on.
func (l *Link) Cut() {
	l.change(func() {
		l.cut = true
		for c := range l.open {
			c.reset()
		}
	})
}

// HoldReplies lets requests pass and keeps the answers, those on new
// connections too, until Restore delivers them or Cut loses them.
func (l *Link) HoldReplies() { l.change(func() { l.held = true }) }

// LoseReply waits for the server to complete a command with this tag, such as
// "INSERT 0 1" or "COMMIT", lets its transaction come to its end, and breaks that
// connection instead of passing the answer on. Once: then all is as before.
func (l *Link) LoseReply(tag string) { l.change(func() { l.lose = tag }) }

// Restore makes the link whole: connections are accepted and answers pass.
func (l *Link) Restore() { l.change(func() { l.cut, l.held, l.lose = false, false, "" }) }

// Open is how many connections there are through the link.
func (l *Link) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Accepted is how many connections have been made, refused ones included.
func (l *Link) Accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted
}

// Lost is how many answers LoseReply has swallowed.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *Link) change(fields func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fields()
	l.mood.Broadcast()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // the test is over
		}
		// The port stays bound while the link is cut, so that nobody else gets
		// it: a client is not refused but reset, which tells it as much.
		c := &connection{link: l, client: client.(*net.TCPConn)}
		if !l.admit(c) {
			abort(c.client)
			continue
		}
		l.running.Go(c.run)
	}
}

// admit takes the connection in unless the link is cut.
func (l *Link) admit(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	if l.cut {
		return false
	}
	l.open[c] = struct{}{}
	return true
}

// abort closes with a reset, as a machine does that knows nothing of the
// connection, instead of ending it in order.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
