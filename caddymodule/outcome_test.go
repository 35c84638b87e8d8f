package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvidenceDecidesTheRecordAndTheAnswer(t *testing.T) {
	upstreamError := errors.New("EOF")
	for _, c := range []struct {
		name    string
		given   evidence
		fate    fate
		status  int // of the gateway's own answer; 0: the response, or the error, as it came
		pass    bool
		onRoute map[string]Rule
	}{
		{name: "a whole response is stored", given: evidence{status: 201, whole: true}, fate: fateStore},
		{name: "a refusal of the upstream is stored", given: evidence{status: 422, whole: true}, fate: fateStore},
		{name: "nothing written is an empty 200", given: evidence{whole: true}, fate: fateStore},
		{name: "401 releases", given: evidence{status: 401, whole: true}, fate: fateRelease},
		{name: "403 releases", given: evidence{status: 403, whole: true}, fate: fateRelease},
		{name: "407 releases", given: evidence{status: 407, whole: true}, fate: fateRelease},
		{name: "408 releases", given: evidence{status: 408, whole: true}, fate: fateRelease},
		{name: "425 releases", given: evidence{status: 425, whole: true}, fate: fateRelease},
		{name: "429 releases", given: evidence{status: 429, whole: true}, fate: fateRelease},
		{name: "500 proves nothing, and is shown", given: evidence{status: 500, whole: true}, fate: fateUnknown},
		{name: "503 proves nothing", given: evidence{status: 503, whole: true}, fate: fateUnknown},
		{name: "501 is stored", given: evidence{status: 501, whole: true}, fate: fateStore},
		{name: "505 is stored", given: evidence{status: 505, whole: true}, fate: fateStore},
		{name: "the route's status comes before the default", given: evidence{status: 503, whole: true}, onRoute: map[string]Rule{"503": RuleRelease}, fate: fateRelease},
		{name: "the route's class comes before the default status", given: evidence{status: 429, whole: true}, onRoute: map[string]Rule{"4xx": RuleStore}, fate: fateStore},
		{name: "the route's status comes before its class", given: evidence{status: 404, whole: true}, onRoute: map[string]Rule{"4xx": RuleStore, "404": RuleUnknown}, fate: fateUnknown},
		{name: "never sent releases, and the error passes", given: evidence{neverSent: true, err: upstreamError}, fate: fateRelease, pass: true},
		{name: "never sent within the time releases", given: evidence{neverSent: true, timedOut: true, err: upstreamError}, fate: fateRelease, pass: true},
		{name: "an error after a connection is unknown", given: evidence{err: upstreamError}, fate: fateUnknown, status: 502},
		{name: "a timeout is unknown", given: evidence{timedOut: true, err: upstreamError}, fate: fateUnknown, status: 504},
		{name: "a timeout that the proxy notes as 499 is unknown", given: evidence{timedOut: true, status: 499, whole: true}, fate: fateUnknown, status: 504},
		{name: "499 of the proxy is unknown", given: evidence{status: 499, whole: true}, fate: fateUnknown, status: 502},
		{name: "a panic is unknown", given: evidence{panicked: "boom"}, fate: fateUnknown, status: 502},
		{name: "a panic after the head is unknown", given: evidence{status: 201, panicked: "boom"}, fate: fateUnknown, status: 502},
		{name: "a panic is unknown, sent or not", given: evidence{neverSent: true, panicked: "boom"}, fate: fateUnknown, status: 502},
		{name: "an abort before the head is unknown", given: evidence{panicked: http.ErrAbortHandler}, fate: fateUnknown, status: 502},
		{name: "a body that broke off is completed without it", given: evidence{status: 201, panicked: http.ErrAbortHandler}, fate: fateStoreWithoutBody, status: 502},
		{name: "a body that is too short is completed without it", given: evidence{status: 201}, fate: fateStoreWithoutBody, status: 502},
		{name: "a body that broke off in time is completed without it", given: evidence{status: 201, timedOut: true, panicked: http.ErrAbortHandler}, fate: fateStoreWithoutBody, status: 502},
		{name: "a server error that broke off is unknown", given: evidence{status: 500, panicked: http.ErrAbortHandler}, fate: fateUnknown, status: 502},
		{name: "a refusal that broke off releases, and breaks off", given: evidence{status: 429, panicked: http.ErrAbortHandler}, fate: fateRelease, pass: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := statusRules{route: c.onRoute}.judge(c.given)

			require.Equal(t, c.fate, got.fate)
			require.Equal(t, c.pass, got.pass)
			if c.status == 0 {
				require.Nil(t, got.refusal)
			} else {
				require.Equal(t, c.status, got.refusal.status)
			}
		})
	}
}

// Whatever else is known: without proof, nothing is released but by a status that
// says so.
func TestNothingIsReleasedWithoutProof(t *testing.T) {
	for _, status := range []int{0, 200, 201, 204, 400, 404, 409, 499, 500, 502, 503, 504} {
		for flags := range 16 {
			e := evidence{status: status, whole: flags&1 != 0, timedOut: flags&2 != 0}
			if flags&4 != 0 {
				e.err = errors.New("EOF")
			}
			if flags&8 != 0 {
				e.panicked = http.ErrAbortHandler
			}
			require.NotEqual(t, fateRelease, statusRules{}.judge(e).fate, fmt.Sprintf("%+v", e))
		}
	}
}

func TestOversizedResponseIsJudgedByItsStatus(t *testing.T) {
	require.Equal(t, fateStoreWithoutBody, statusRules{}.judgeLarge(201).fate)
	require.Equal(t, fateUnknown, statusRules{}.judgeLarge(500).fate)
	require.Equal(t, fateRelease, statusRules{}.judgeLarge(429).fate)
}

func TestReasonIsWhatADatabaseCanKeep(t *testing.T) {
	require.Equal(t, "panic: a?b c", inWords("panic: a\xffb\x00c"))
	require.LessOrEqual(t, len(inWords(strings.Repeat("é", 500))), 210)
}
