package service

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTwoPostsMakeTwoOrders(t *testing.T) {
	s := newShop(t)
	body := `{"requisition_no":"R-1","item":"bolt","amount":100,"currency":"CNY"}`

	first := s.post(body, "Idempotency-Key: K1")
	again := s.post(body, "Idempotency-Key: K1")

	require.Equal(t, http.StatusCreated, first.StatusCode)
	require.Equal(t, "/orders/ord-1", first.Header.Get("Location"))
	require.Equal(t, `{"id":"ord-1","requisition_no":"R-1","item":"bolt","amount":100,"currency":"CNY","status":"open","version":1}`+"\n", first.body)
	require.Equal(t, "ord-2", again.order(t).ID)
	s.counted("R-1", 2, 2)
	require.Equal(t, 2, s.Stats().IdempotencyKeysSeen)
}

func TestEmptyBodyIsAnOrderOfDefaults(t *testing.T) {
	s := newShop(t)
	o := s.post("").order(t)
	require.Equal(t, "unspecified", o.Item)
	require.Equal(t, "0", string(o.Amount))
	require.Equal(t, "CNY", o.Currency)
	s.counted("", 1, 1)
}

func TestAmountIsKeptAsItWasSent(t *testing.T) {
	s := newShop(t)
	for i, amount := range []string{"9007199254740993", "1.00", `"100"`, "1e400"} {
		s.post(`{"amount":` + amount + `}`)
		require.Contains(t, s.get(fmt.Sprintf("/orders/ord-%d", i+1)).body, `"amount":`+amount+`,`)
	}
}

func TestReferenceIsTheBodysThenTheHeadersThenTheRequisition(t *testing.T) {
	s := newShop(t)
	s.post(`{"ref":"B","requisition_no":"R"}`, "X-Client-Reference: H")
	s.post(`{"requisition_no":"R"}`, "X-Client-Reference: H")
	s.post(`{"requisition_no":"R"}`)
	s.post(`{"ref":7}`)
	require.Equal(t, map[string]int{"B": 1, "H": 1, "R": 1, "7": 1}, s.Stats().ByReference)
	require.Equal(t, map[string]int{"B": 1, "H": 1, "R": 1, "7": 1}, s.Stats().OrdersByReference)
}

func TestOrdersAreFoundByTheirReferences(t *testing.T) {
	s := newShop(t)
	s.post(`{"requisition_no":"R-1","ref":"K1"}`, "X-Client-Reference: C-1")
	s.post(`{"requisition_no":"R-1"}`, "X-Client-Reference: C-2")

	for query, ids := range map[string]string{
		"":                                    "ord-1 ord-2",
		"?client_ref=C-2":                     "ord-2",
		"?requisition_no=R-1":                 "ord-1 ord-2",
		"?requisition_no=R-1&client_ref=C-1":  "ord-1",
		"?ref=K1":                             "ord-1",
		"?requisition_no=R-1&missing=404":     "ord-1 ord-2",
		"?requisition_no=none":                "",
		"?requisition_no=R-1&client_ref=none": "",
	} {
		found := s.get("/orders" + query)
		require.Equal(t, http.StatusOK, found.StatusCode, query)
		for _, id := range []string{"ord-1", "ord-2"} {
			require.Equal(t, strings.Contains(ids, id), strings.Contains(found.body, id), "%s: %s", query, found.body)
		}
	}
	require.Equal(t, `{"orders":[]}`+"\n", s.get("/orders?client_ref=none").body)
	require.Equal(t, http.StatusNotFound, s.get("/orders?client_ref=none&missing=404").StatusCode)
	require.Equal(t, http.StatusNotFound, s.get("/orders/ord-3").StatusCode)
	require.Equal(t, 2, s.Stats().Executions, "reads are not counted")
}

func TestPatchChangesWhatItNamesAndIsCounted(t *testing.T) {
	s := newShop(t)
	s.post(`{"item":"bolt","amount":100}`)

	changed := s.send(http.MethodPatch, "/orders/ord-1", `{"amount":120,"status":"paid","item":null,"ref":"P"}`)
	missing := s.send(http.MethodPatch, "/orders/ord-9", `{"ref":"Q"}`)

	require.Equal(t, http.StatusOK, changed.StatusCode)
	require.Equal(t, `{"id":"ord-1","item":"bolt","amount":120,"currency":"CNY","status":"paid","version":2}`+"\n", changed.body)
	require.Equal(t, changed.body, s.get("/orders/ord-1").body)
	require.Equal(t, http.StatusNotFound, missing.StatusCode)
	require.Equal(t, map[string]int{"": 1, "P": 1, "Q": 1}, s.Stats().ByReference)
	require.Equal(t, 1, s.Stats().Changes)
}

func TestBodiesOfOtherKindsAreOrdersToo(t *testing.T) {
	s := newShop(t)
	var coded bytes.Buffer
	z := gzip.NewWriter(&coded)
	_, _ = io.WriteString(z, `{"item":"nut"}`)
	require.NoError(t, z.Close())

	for _, c := range []struct{ contentType, coding, body, item string }{
		{"application/x-www-form-urlencoded", "", "item=nut&amount=5", "nut"},
		{"application/x-www-form-urlencoded", "", `{"item":"nut"}`, "nut"}, // curl -d without a header
		{"application/vnd.acme+json", "", `{"item":"nut"}`, "nut"},
		{"application/json", "gzip", coded.String(), "nut"},
		{"application/json", "", `["nut"]`, "unspecified"},
		{"application/octet-stream", "", "\x00\xff", "unspecified"},
	} {
		made := s.post(c.body, "Content-Type: "+c.contentType, "Content-Encoding: "+c.coding)
		require.Equal(t, http.StatusCreated, made.StatusCode, "%+v: %s", c, made.body)
		require.Equal(t, c.item, made.order(t).Item, "%+v", c)

		digest := sha256.Sum256([]byte(c.body))
		executions := s.Executions()
		require.Equal(t, hex.EncodeToString(digest[:]), executions[len(executions)-1].BodySHA256, "of the bytes as they came")
	}
}

func TestBadBodiesAreRefusedAndCountedAllTheSame(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct {
		contentType, coding, body string
		status                    int
	}{
		{"application/json", "", `{"item":`, 400},
		{"application/x-www-form-urlencoded", "", "%zz", 400},
		{"application/json", "gzip", "not gzip", 400},
		{"application/json", "br", "?", 415},
		{"text/plain", "", strings.Repeat("x", maxBody+1), 413},
	} {
		got := s.post(c.body, "Content-Type: "+c.contentType, "Content-Encoding: "+c.coding, "X-Client-Reference: bad")
		require.NoError(t, got.err)
		require.Equal(t, c.status, got.StatusCode, got.body)
	}
	s.counted("bad", 5, 0)
}

func TestBodyThatBreaksOffIsNoExecution(t *testing.T) {
	s := newShop(t)
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: orders\r\nContent-Length: 100\r\n\r\n{\"ref\":")
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	stats, err := s.WaitStats(t.Context(), func(now Stats) bool { return now.Incomplete == 1 })
	require.NoError(t, err)
	require.Zero(t, stats.Executions)
}

func TestAcceptEncodingIsRecorded(t *testing.T) {
	s := newShop(t)
	s.post("", "Accept-Encoding: identity")
	s.post("", "Accept-Encoding: gzip", "Accept-Encoding: br")
	s.post("")
	require.Equal(t, map[string]int{"identity": 1, "gzip, br": 1, "": 1}, s.Stats().AcceptEncoding)
	require.Zero(t, s.Stats().IdempotencyKeysSeen)
}
