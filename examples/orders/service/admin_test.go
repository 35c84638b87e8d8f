package service

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func (s *shop) arm(body string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/faults", body)
}

func TestArmedFaultStrikesTheNextRequests(t *testing.T) {
	s := newShop(t)
	require.Equal(t, http.StatusOK, s.arm(`{"fault":"status","for":"409","times":2}`).StatusCode)
	for _, status := range []int{409, 409, 201} {
		require.Equal(t, status, s.post("").StatusCode)
	}
}

func TestArmedFaultStrikesOnlyWhatItIsMeantFor(t *testing.T) {
	s := newShop(t)
	s.arm(`{"fault":"refuse:503","ref":"K2"}`)
	s.arm(`{"fault":"status:502","method":"GET"}`)

	require.Equal(t, 201, s.post(`{"ref":"K1"}`).StatusCode)
	require.Equal(t, 503, s.post(`{"ref":"K2"}`).StatusCode)
	require.Equal(t, 201, s.post(`{"ref":"K2"}`).StatusCode)
	require.Equal(t, 502, s.get("/orders/ord-1").StatusCode)
	require.Equal(t, 200, s.get("/orders/ord-1").StatusCode)
}

func TestReadIsStruckByNoHeaderAndNoFaultArmedForWrites(t *testing.T) {
	s := newShop(t)
	s.post("")
	s.arm(`{"fault":"status:500"}`)
	require.Equal(t, 200, s.send(http.MethodGet, "/orders/ord-1", "", "X-Fault: status:500").StatusCode)
	require.Equal(t, 500, s.post("").StatusCode)
}

func TestDisarmTakesBackWhatIsArmed(t *testing.T) {
	s := newShop(t)
	require.Equal(t, `{"armed":[{"fault":"refuse:503","times":-1}],"waiting":0}`+"\n", s.arm(`{"fault":"refuse:503","times":-1}`).body)
	require.Equal(t, 503, s.post("").StatusCode)
	require.Equal(t, 503, s.post("").StatusCode)
	require.Equal(t, `{"armed":[],"waiting":0}`+"\n", s.send(http.MethodDelete, "/faults", "").body)
	require.Equal(t, 201, s.post("").StatusCode)
}

func TestArmingNonsenseIsRefused(t *testing.T) {
	s := newShop(t)
	for _, body := range []string{`{}`, `{"fault":"nonsense"}`, `{"fault":"delay"}`, `{"fault":"die","time":2}`, `?`} {
		require.Equal(t, http.StatusBadRequest, s.arm(body).StatusCode, body)
	}
	require.Equal(t, `{"armed":[],"waiting":0}`+"\n", s.get("/faults").body)
}

func TestWaitingAndReleaseOverHTTP(t *testing.T) {
	s := newShop(t)
	s.arm(`{"fault":"hold","times":2}`)
	first, second := s.later(""), s.later("")

	require.Equal(t, `{"waiting":2}`+"\n", s.get("/faults/waiting?n=2").body)
	require.Equal(t, `{"released":1}`+"\n", s.send(http.MethodPost, "/faults/release?n=1", "").body)
	require.Equal(t, `{"released":1}`+"\n", s.send(http.MethodPost, "/faults/release", "").body)
	require.Equal(t, 201, (<-first).StatusCode)
	require.Equal(t, 201, (<-second).StatusCode)
}

func TestWaitingEndsWithItsTimeout(t *testing.T) {
	s := newShop(t)
	late := s.get("/faults/waiting?timeout=1ms")
	require.Equal(t, http.StatusGatewayTimeout, late.StatusCode)
	require.Equal(t, `{"waiting":0}`+"\n", late.body)
	require.Equal(t, http.StatusGatewayTimeout, s.get("/stats?executions=1&timeout=1ms").StatusCode)

	for _, path := range []string{"/stats?orders=x", "/stats?timeout=1", "/faults/waiting?n=-1"} {
		require.Equal(t, http.StatusBadRequest, s.get(path).StatusCode, path)
	}
}

func TestStatsWaitForACount(t *testing.T) {
	s := newShop(t)
	answers := make(chan answer, 1)
	go func() { answers <- s.get("/stats?ref=K1&executions=2&orders=1") }()
	s.post(`{"ref":"K2"}`)
	s.post(`{"ref":"K1"}`, "X-Fault: refuse")
	s.post(`{"ref":"K1"}`)

	got := <-answers
	require.Equal(t, http.StatusOK, got.StatusCode)
	require.JSONEq(t, `{"executions":3,"orders":2,"changes":0,"incomplete":0,
		"by_reference":{"K1":2,"K2":1},"orders_by_reference":{"K1":1,"K2":1},
		"idempotency_keys_seen":0,"accept_encoding":{"":3}}`, got.body)
}

func TestExecutionsTellTheStory(t *testing.T) {
	s := newShop(t)
	s.post(`{"ref":"K1"}`, "X-Fault: refuse")
	s.post(`{"ref":"K1"}`, "Idempotency-Key: K1")

	require.Contains(t, s.get("/executions").body, `"n":2,`)
	story := s.Executions()
	require.Empty(t, story[0].Order)
	require.Equal(t, "refuse", story[0].Fault)
	require.Equal(t, "ord-1", story[1].Order)
	require.True(t, story[1].IdempotencyKey)
}
