package pgtest

import (
	"encoding/binary"
	"io"
	"net"
)

// connection is one client's way through a link.
type connection struct {
	link   *Link
	client *net.TCPConn

	// Guarded by link.mu.
	server net.Conn // nil until it is dialled
	dead   bool
}

// run ends when either side does.
func (c *connection) run() {
	defer c.link.change(func() {
		c.reset()
		delete(c.link.open, c)
	})
	server, err := net.Dial(c.link.network, c.link.server)
	if err != nil {
		return
	}
	alive := true
	c.link.change(func() {
		c.server = server
		alive = !c.dead
	})
	if !alive { // cut while it was dialled
		abort(server)
		return
	}
	c.link.running.Go(func() {
		_, _ = io.Copy(server, c.client)
		c.link.change(c.reset)
	})
	c.replies(server)
}

// reset ends both sides. It is called with the link's lock held.
func (c *connection) reset() {
	c.dead = true
	abort(c.client)
	if c.server != nil {
		_ = c.server.Close()
	}
}

// What the server says is a series of messages: a type, a length which counts
// itself, and as many bytes. (All of them: the one answer that is not of this
// form, to a request for TLS, is not asked for here.)
const (
	headerLength    = 5
	commandComplete = 'C' // with the command's tag
	readyForQuery   = 'Z' // the transaction, if it was implicit, is over
)

// replies passes on what the server says, one message at a time.
func (c *connection) replies(server net.Conn) {
	losing := false
	header := make([]byte, headerLength)
	for {
		if _, err := io.ReadFull(server, header); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint32(header[1:])) - (headerLength - 1)
		message := make([]byte, headerLength+length)
		copy(message, header)
		if _, err := io.ReadFull(server, message[headerLength:]); err != nil {
			return
		}

		// CommandComplete comes before an implicit transaction commits, and
		// ReadyForQuery after it: that is when the answer can be lost.
		switch {
		case losing && message[0] == readyForQuery:
			c.link.change(func() { c.link.lost++ })
			return
		case losing:
			continue
		case message[0] == commandComplete && c.link.loses(string(message[headerLength:len(message)-1])):
			losing = true
			continue
		}
		if !c.link.passes(c) {
			return
		}
		if _, err := c.client.Write(message); err != nil {
			return
		}
	}
}

// loses reports whether the answer with this tag is the one to be lost, which
// happens once.
func (l *Link) loses(tag string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose == "" || l.lose != tag {
		return false
	}
	l.lose = ""
	return true
}

// passes waits while answers are held, and reports whether the connection is
// still there afterwards.
func (l *Link) passes(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held && !c.dead {
		l.mood.Wait()
	}
	return !c.dead
}
