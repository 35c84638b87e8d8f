// Package service is a legacy order service: it was never written to be retried.
//
// Each POST /orders that arrives makes an order, so two POSTs make two orders. It knows nothing of idempotency keys.
// That makes it the truth of every test that puts something in front of it: what it counted is what happened.
//
// # Words
//
// An execution is a write (POST or PATCH) that arrived whole. It is counted, on disk, before anything else is done
// with it, whatever becomes of it afterwards. A commit is what the write was for: an order made, or an order changed.
// The reference says whose execution it is: the body's member ref, else the header X-Client-Reference, else the body's
// member requisition_no. A write whose body broke off is no execution; it is counted as incomplete.
//
// # Endpoints
//
//	POST   /orders               makes an order: 201, Location and the order. An empty body is an order of defaults
//	PATCH  /orders/{id}          changes an order: 200 and the order as it is now, 404 for one that does not exist
//	GET    /orders/{id}          the order, or 404
//	GET    /orders               {"orders":[…]}, narrowed by client_ref, requisition_no or ref;
//	                             missing=404 answers 404 where the list would be empty
//	GET    /executions           {"executions":[…]}: every execution, with the id of its order if it was committed
//	GET    /stats                the counts; executions=N, orders=N (of ref=R) waits until there are as many
//	GET    /faults               the faults armed, and how many requests are held
//	POST   /faults               arms a fault: {"fault":"delay","for":"3s","times":1}
//	DELETE /faults               disarms all
//	GET    /faults/waiting       waits until n (default 1) requests are held
//	POST   /faults/release       lets the n oldest held requests go on (default all)
//
// What waits takes timeout (default 30s) and answers 504 when it is over.
//
// # Faults
//
// A write asks for faults in the header X-Fault or in the body's member fault (a text, or a list of texts), or gets
// one that was armed. The three add up, and several faults in one text are separated by commas: "hold, die-after".
// No argument holds a comma.
//
// A read gets a fault only if one was armed for its method, so that a header copied from a write to a read does no
// harm. Times, method and ref narrow what an armed fault strikes; see [Arming].
//
//	before the commit
//	  delay:DURATION        waits
//	  hold                  waits until it is released
//	  die                   the process dies
//	  reset                 the connection is reset (RST)
//	  refuse[:STATUS]       answers STATUS (503) and commits nothing
//	after the commit, before the answer
//	  delay-after:DURATION  waits
//	  hold-after            waits until it is released
//	  die-after             the process dies
//	  reset-after           the connection is reset
//	the answer
//	  vanish                closes the connection without a byte of answer
//	  status[:STATUS]       answers STATUS (500); from 400 on an error without Location; 204 and 304 without a body
//	  header:NAME=VALUE     adds a header line; without VALUE takes the header away
//	  repeat                adds header lines that come several times (X-Legacy, Link), one of them twice the same
//	  cookies[:N]           sets N (2) cookies, a line each
//	  hints                 103 Early Hints first
//	  binary                the body is all 256 byte values
//	  huge:BYTES            the order is padded to BYTES, streamed
//	  gzip                  the body is gzip coded, accepted or not
//	  gzip-accepted         the body is gzip coded if Accept-Encoding takes it, and Vary says so
//	how the answer's body travels
//	  chunked               without Content-Length
//	  break                 half of it, then the connection closes
//	  hold-body             half of it, then it waits until it is released
//	  dribble:DURATION      a byte at a time, and DURATION before each
//
// A request that waits does not notice that its client has gone: the work of a legacy service goes on.
package service
