package storetest

import (
	"bytes"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var answers = []story{
	{"who comes after the completion gets it byte for byte", func(w *world) {
		for name, response := range responses {
			w.completes(w.wins(name), store.Completion{
				Status: http.StatusCreated, Resource: "/orders/ü?a=1#x", Response: &response, ReplayFor: ample,
			})

			got := w.loses(name)

			require.Equal(w, store.Completed, got.State, name)
			require.Equal(w, http.StatusCreated, got.Status, name)
			require.Equal(w, "/orders/ü?a=1#x", got.Resource, name)
			require.NotNil(w, got.Response, name)
			require.Equal(w, store.EncodeHeader(response.Header), store.EncodeHeader(got.Response.Header), name)
			require.Len(w, got.Response.Header, len(response.Header), name)
			require.True(w, bytes.Equal(response.Body, got.Response.Body), name)
			w.unchanged(w.record(name), got, name)
		}
	}},

	{"a response that was not kept is not an empty one", func(w *world) {
		completion := created("")
		completion.Response = nil
		w.completes(w.wins("not kept"), completion)
		w.completes(w.wins("empty"), created(""))

		require.Nil(w, w.loses("not kept").Response)
		require.NotNil(w, w.loses("empty").Response)
		require.Empty(w, w.loses("empty").Response.Body)
		require.Equal(w, http.StatusCreated, w.loses("not kept").Status)
		require.Equal(w, "/orders/1", w.loses("not kept").Resource)
	}},

	{"every status is kept as it is", func(w *world) {
		for _, status := range []int{100, 200, 201, 204, 299, 304, 404, 422, 500, 599, 999} {
			key := http.StatusText(status) + string(rune(status))
			completion := created("")
			completion.Status = status
			w.completes(w.wins(key), completion)
			require.Equal(w, status, w.loses(key).Status)
		}
	}},

	{"times are the database's", func(w *world) {
		w.completes(w.wins("K1"), created("{}"))

		record := w.record("K1")

		require.False(w, record.SettledAt.Before(record.ClaimedAt))
		require.False(w, record.Now.Before(record.SettledAt))
		require.WithinDuration(w, record.SettledAt.Add(ample), record.ReplayUntil, 2e6)
	}},

	{"an outcome that is in doubt keeps what is known of it", func(w *world) {
		claim := w.wins("K1")

		require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{
			Status: 502, Resource: "/orders/1", Reason: "upstream broke off — 50 %",
		}))

		held := w.loses("K1")
		require.Equal(w, store.Unknown, held.State)
		require.Equal(w, 502, held.Status)
		require.Equal(w, "/orders/1", held.Resource)
		require.Equal(w, "upstream broke off — 50 %", held.Reason)
		require.Nil(w, held.Response)
		require.NotZero(w, held.SettledAt)
		require.Zero(w, held.ReplayUntil)
	}},

	{"an outcome about which nothing is known is in doubt all the same", func(w *world) {
		require.NoError(w, w.wins("K1").MarkUnknown(w.Context(), store.Doubt{}))

		held := w.loses("K1")
		require.Equal(w, store.Unknown, held.State)
		require.Zero(w, held.Status)
		require.Empty(w, held.Resource)
	}},

	{"a doubt that is resolved leaves nothing of itself", func(w *world) {
		claim := w.wins("K1")
		require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{Status: 502, Reason: "timeout"}))

		w.completes(claim, created("late"))

		held := w.loses("K1")
		require.Equal(w, store.Completed, held.State)
		require.Equal(w, http.StatusCreated, held.Status)
		require.Empty(w, held.Reason)
		require.Equal(w, "late", string(held.Response.Body))
	}},
}

// responses are hard to keep exactly.
var responses = map[string]store.Response{
	"repeated header lines": {
		Header: http.Header{"Link": {"</a>; rel=a", "</b>; rel=b", "</a>; rel=a"}, "X-Empty": {""}},
		Body:   []byte("{}"),
	},
	"header names in their own spelling": {
		Header: http.Header{"x-lower": {"1"}, "X-Lower": {"2"}, "ETag": {`W/"1"`}},
		Body:   []byte("{}"),
	},
	"header values that are not UTF-8": {
		Header: http.Header{"X-Latin": {"caf\xe9"}, "X-Colon": {"a: b", ": "}},
		Body:   []byte("{}"),
	},
	"a binary body":       {Header: http.Header{"Content-Type": {"application/pdf"}}, Body: everyByte(257)},
	"a body of two MB":    {Header: http.Header{}, Body: everyByte(2 << 20)},
	"an empty body":       {Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte{}},
	"nothing but headers": {Header: http.Header{"Location": {"/orders/1"}}, Body: nil},
	"nothing at all":      {Header: nil, Body: nil},
	"white space":         {Header: http.Header{}, Body: []byte(" {\r\n\t\"a\" : 1.0 }\n\n")},
	"text that is no SQL": {Header: http.Header{}, Body: []byte(`\x41 \\ ' '' $1 ? %s :name`)},
}

func everyByte(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i)
	}
	return body
}
