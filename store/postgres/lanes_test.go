package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func TestCallBehindABatchThatHangsIsSentBesideItThoughNobodyElseComes(t *testing.T) {
	hangs, began, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	b := &batches{lanes: 2, most: maxBatch, patience: time.Minute, send: func(claims, _ []*member) error {
		if claims[0].op == "hangs" {
			close(began)
			<-hangs
		}
		return nil
	}}
	go func() { ended <- b.join(t.Context(), &member{op: "hangs", draft: &store.Draft{}}) }()
	<-began

	require.NoError(t, b.join(t.Context(), &member{op: "comes later", draft: &store.Draft{}}))

	close(hangs)
	require.NoError(t, <-ended)
}
