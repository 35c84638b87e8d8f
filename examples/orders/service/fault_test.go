package service

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFaultsThatEndTheConnection(t *testing.T) {
	for _, c := range []struct {
		fault  string
		orders int
		err    error
	}{
		{"reset", 0, syscall.ECONNRESET},
		{"reset-after", 1, syscall.ECONNRESET},
		{"vanish", 1, io.EOF},
	} {
		t.Run(c.fault, func(t *testing.T) {
			s := newShop(t)
			got := s.post(`{"ref":"K1"}`, "X-Fault: "+c.fault)
			require.ErrorIs(t, got.err, c.err)
			s.counted("K1", 1, c.orders)
			require.Equal(t, http.StatusCreated, s.post("").StatusCode, "the service goes on")
		})
	}
}

func TestDeathKeepsWhatWasCommitted(t *testing.T) {
	for fault, orders := range map[string]int{"die": 0, "die-after": 1} {
		t.Run(fault, func(t *testing.T) {
			s := newShop(t)
			got := s.post(`{"ref":"K1"}`, "X-Fault: "+fault)
			require.Error(t, got.err)
			<-s.Dead()
			require.ErrorIs(t, s.get("/stats").err, syscall.ECONNREFUSED)

			s.restart()
			s.counted("K1", 1, orders)
		})
	}
}

func TestHeldRequestDiesWithTheService(t *testing.T) {
	s := newShop(t)
	answers := s.later(`{"ref":"K1"}`, "X-Fault: hold")
	s.awaitHeld(1)

	s.restart()

	require.Error(t, (<-answers).err)
	s.counted("K1", 1, 0)
}

func TestBareHandlerDropsConnectionsOnceItIsDead(t *testing.T) {
	var died atomic.Int32
	service, err := New(Config{Data: filepath.Join(t.TempDir(), "orders.jsonl"), Die: func() { died.Add(1) }})
	require.NoError(t, err)
	server := httptest.NewServer(service)
	defer server.Close()

	for _, fault := range []string{"die-after", ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("X-Fault", fault)
		response, err := server.Client().Do(r)
		if err == nil {
			_ = response.Body.Close()
		}
		require.ErrorIs(t, err, io.EOF, fault)
	}
	require.EqualValues(t, 1, died.Load())
	require.Equal(t, 1, service.Stats().Orders)
	require.NoError(t, service.Close(), "closing twice is fine")
}

func TestHoldWaitsBeforeOrAfterTheCommit(t *testing.T) {
	for fault, orders := range map[string]int{"hold": 0, "hold-after": 1, "hold-body": 1} {
		t.Run(fault, func(t *testing.T) {
			s := newShop(t)
			answers := s.later(`{"ref":"K1"}`, "X-Fault: "+fault)
			s.awaitHeld(1)
			s.counted("K1", 1, orders)

			require.Equal(t, 1, s.Release(0))
			require.Equal(t, "ord-1", (<-answers).order(t).ID)
			s.counted("K1", 1, 1)
		})
	}
}

func TestReleaseTakesTheOldestFirst(t *testing.T) {
	s := newShop(t)
	first := s.later(`{"ref":"K1"}`, "X-Fault: hold")
	s.awaitHeld(1)
	second := s.later(`{"ref":"K2"}`, "X-Fault: hold")
	s.awaitHeld(2)

	require.Equal(t, 1, s.Release(1))
	require.Equal(t, "K1", (<-first).order(t).Ref)
	require.Equal(t, 1, s.Release(5))
	require.Equal(t, "K2", (<-second).order(t).Ref)
}

func TestWorkOutlastsItsClient(t *testing.T) {
	for _, fault := range []string{"hold, delay:1ms", "hold, delay-after:1ms"} {
		s := newShop(t)
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/orders", strings.NewReader(`{"ref":"K1"}`))
		require.NoError(t, err)
		r.Header.Set("X-Fault", fault)
		answers := make(chan answer, 1)
		go func() { answers <- s.do(r) }()
		s.awaitHeld(1)
		hangUp()
		require.ErrorIs(t, (<-answers).err, context.Canceled)

		s.Release(0)
		_, err = s.WaitStats(t.Context(), func(now Stats) bool { return now.OrdersByReference["K1"] == 1 })
		require.NoError(t, err)
	}
}

func TestDelayTakesItsTime(t *testing.T) {
	s := newShop(t)
	begin := time.Now()
	require.Equal(t, http.StatusCreated, s.post("", "X-Fault: delay:20ms, delay-after:20ms").StatusCode)
	require.GreaterOrEqual(t, time.Since(begin), 40*time.Millisecond)
}

func TestRefusalCommitsNothing(t *testing.T) {
	s := newShop(t)
	require.Equal(t, http.StatusServiceUnavailable, s.post(`{"ref":"K1","fault":"refuse"}`).StatusCode)
	require.Equal(t, http.StatusTooManyRequests, s.post(`{"ref":"K1","fault":"refuse:429"}`).StatusCode)
	s.counted("K1", 2, 0)
}

func TestFaultsAddUp(t *testing.T) {
	s := newShop(t)
	require.NoError(t, s.Arm(Arming{Fault: "cookies:1"}))
	got := s.post(`{"ref":"K1","fault":["status:202","header:X-A=1"]}`, "X-Fault: hints, header:X-A=2", "X-Fault: header:Location=")

	require.Equal(t, http.StatusAccepted, got.StatusCode)
	require.Equal(t, []string{"2", "1"}, got.Header.Values("X-A"))
	require.Len(t, got.Header.Values("Set-Cookie"), 1)
	require.Empty(t, got.Header.Get("Location"))
	require.Equal(t, "hints, header:X-A=2, header:Location=, status:202, header:X-A=1", s.Executions()[0].Fault)
}

func TestUnknownFaultsAreRefusedByName(t *testing.T) {
	s := newShop(t)
	for fault, text := range map[string]string{
		"dealy:3s":     `there is no fault \"dealy\"`,
		"delay":        "a duration such as 3s",
		"delay:-3s":    "a duration such as 3s",
		"status:99":    "a status from 200 to 599",
		"cookies:many": "a number from 1 to 1000",
		"huge":         "a number of bytes",
		"header:X":     "NAME=VALUE",
		"hold:3s":      "takes nothing",
	} {
		got := s.post(`{"ref":"K1"}`, "X-Fault: "+fault)
		require.Equal(t, http.StatusBadRequest, got.StatusCode)
		require.Contains(t, got.body, text)
	}
	require.Empty(t, s.Orders())
}

// Go's transport sends a request again, without being told to, if it has no body, carries an idempotency key and the
// kept connection dies. That is the trap which vanish is there to set.
func TestVanishOnAKeptConnectionMakesGoSendAKeyedRequestAgain(t *testing.T) {
	for header, executions := range map[string]int{"Idempotency-Key": 2, "X-Idempotency-Key": 2, "X-Other": 1} {
		t.Run(header, func(t *testing.T) {
			s := newShop(t)
			require.NoError(t, s.get("/stats").err) // leaves a connection to be reused
			require.NoError(t, s.Arm(Arming{Fault: "vanish"}))

			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/orders", http.NoBody)
			require.NoError(t, err)
			r.Header.Set(header, "K1")
			got := s.do(r)

			require.Equal(t, executions == 1, errors.Is(got.err, io.EOF), "%v", got.err)
			require.Equal(t, executions, s.Stats().Executions)
		})
	}
}

func TestEveryFaultIsDocumented(t *testing.T) {
	doc := readFile(t, "doc.go")
	for name := range kinds {
		documented := slices.ContainsFunc(strings.Split(doc, "\n"), func(line string) bool {
			fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("/ \t:[", r) })
			return strings.HasPrefix(line, "//\t  ") && len(fields) > 0 && fields[0] == name
		})
		require.True(t, documented, "the package comment does not list %s", name)
	}
}
