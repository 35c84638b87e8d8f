package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRestartGoesOnWhereItEnded(t *testing.T) {
	s := newShop(t)
	s.post(`{"item":"bolt","ref":"K1"}`, "Accept-Encoding: identity", "Idempotency-Key: 1")
	s.send(http.MethodPatch, "/orders/ord-1", `{"amount":{"minor": 5}}`)
	s.post(`{"ref":"K2"}`, "X-Fault: refuse")
	stats, orders, executions := s.Stats(), s.Orders(), s.Executions()

	s.restart()

	require.Equal(t, stats, s.Stats())
	require.Equal(t, asJSON(t, orders), asJSON(t, s.Orders()))
	require.Equal(t, executions, s.Executions())
	require.Equal(t, "ord-2", s.post("").order(t).ID)
}

func TestConcurrentWritesAreAllCountedOnceAndInOrder(t *testing.T) {
	s := newShop(t)
	s.post(`{"status":"0"}`)
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() { s.post(fmt.Sprintf(`{"ref":"K%d"}`, i)) })
		writers.Go(func() { s.send(http.MethodPatch, "/orders/ord-1", fmt.Sprintf(`{"status":"%d"}`, i)) })
	}
	writers.Wait()
	stats, orders := s.Stats(), s.Orders()

	require.Equal(t, 101, stats.Executions)
	require.Equal(t, 51, stats.Orders)
	require.Equal(t, 51, orders[0].Version)
	for i := range 50 {
		s.counted(fmt.Sprintf("K%d", i), 1, 1)
	}

	s.restart()
	require.Equal(t, stats, s.Stats())
	require.Equal(t, orders, s.Orders(), "the last change in memory is the last one on disk")
}

func TestTornLastLineIsCutOff(t *testing.T) {
	for name, torn := range map[string]string{
		"half a line":            `{"execution":{"n":2,`,
		"a line without its end": `{"incomplete":{"at":"2026-01-01T00:00:00Z"}}`,
		"zeros":                  "\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.post(`{"ref":"K1"}`)
			require.NoError(t, s.Close())
			whole, err := os.ReadFile(s.data)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(s.data, append(whole, torn...), 0o600))

			s.restart()
			s.post(`{"ref":"K2"}`)
			s.restart()

			s.counted("K1", 1, 1)
			s.counted("K2", 1, 1)
			require.Zero(t, s.Stats().Incomplete)
		})
	}
}

func TestDamagedLineIsNotSkipped(t *testing.T) {
	whole := `{"execution":{"n":1,"reference":"K1"}}` + "\n"
	for name, damaged := range map[string]string{
		"not JSON":                     "{\"execution\":{\"n\":\n",
		"of no known kind":             "{}\n",
		"an execution left out":        `{"execution":{"n":3}}` + "\n",
		"an order left out":            `{"commit":{"execution":1,"order":{"id":"ord-2"}}}` + "\n",
		"an order without execution":   `{"commit":{"execution":2,"order":{"id":"ord-1"}}}` + "\n",
		"a change of no order":         `{"change":{"execution":1,"id":"ord-1"}}` + "\n",
		"a damaged line before others": "?\n" + whole,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(whole+damaged), 0o600))

			_, err := New(Config{Data: path})

			require.ErrorContains(t, err, "line 2 is damaged")
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, whole+damaged, string(kept), "the file is left as it was")
		})
	}
}

func TestSecondServiceOnTheSameFileIsRefused(t *testing.T) {
	s := newShop(t)
	_, err := New(Config{Data: s.data})
	require.ErrorContains(t, err, "another order service has it open")
}

func TestNothingIsAcknowledgedOnceTheDiskHasFailed(t *testing.T) {
	s := newShop(t)
	s.post(`{"ref":"K1"}`)
	require.NoError(t, s.ledger.file.Close())

	failed := s.post(`{"ref":"K2"}`)
	again := s.post(`{"ref":"K3"}`)

	require.Equal(t, http.StatusInternalServerError, failed.StatusCode)
	require.Equal(t, http.StatusInternalServerError, again.StatusCode)
	require.Equal(t, map[string]int{"K1": 1}, s.Stats().ByReference)
}

func TestExecutionIsOnDiskBeforeAnythingElseHappens(t *testing.T) {
	s := newShop(t)
	answers := s.later(`{"ref":"K1"}`, "X-Fault: hold")
	s.awaitHeld(1)

	kept, err := os.ReadFile(s.data)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(kept), "\n"))
	require.Contains(t, string(kept), `"reference":"K1"`)

	s.Release(0)
	require.Equal(t, http.StatusCreated, (<-answers).StatusCode)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
