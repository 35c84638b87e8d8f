package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// moment is when a fault strikes.
type moment int

const (
	beforeCommit moment = iota
	afterCommit
	onAnswer // the answer is made and not yet sent
)

// fault is something that goes wrong with one request.
type fault struct {
	moment moment
	strike func(*exchange)
}

// kind makes a fault of the argument after its name.
type kind func(arg string) (fault, error)

// kinds are all faults there are. The package comment says what each does.
var kinds = map[string]kind{
	"delay":  at(beforeCommit, duration, (*exchange).delay),
	"hold":   at(beforeCommit, nothing, (*exchange).hold),
	"die":    at(beforeCommit, nothing, (*exchange).die),
	"reset":  at(beforeCommit, nothing, (*exchange).reset),
	"refuse": at(beforeCommit, status(http.StatusServiceUnavailable), (*exchange).refuse),

	"delay-after": at(afterCommit, duration, (*exchange).delay),
	"hold-after":  at(afterCommit, nothing, (*exchange).hold),
	"die-after":   at(afterCommit, nothing, (*exchange).die),
	"reset-after": at(afterCommit, nothing, (*exchange).reset),

	"vanish":        at(onAnswer, nothing, (*exchange).vanish),
	"status":        at(onAnswer, status(http.StatusInternalServerError), (*exchange).answerStatus),
	"header":        at(onAnswer, headerLine, (*exchange).setHeader),
	"repeat":        at(onAnswer, nothing, (*exchange).repeatHeaders),
	"cookies":       at(onAnswer, count(2), (*exchange).setCookies),
	"hints":         at(onAnswer, nothing, (*exchange).hint),
	"binary":        at(onAnswer, nothing, (*exchange).binary),
	"huge":          at(onAnswer, size, (*exchange).pad),
	"gzip":          at(onAnswer, nothing, (*exchange).gzip),
	"gzip-accepted": at(onAnswer, nothing, (*exchange).gzipIfAccepted),
	"chunked":       at(onAnswer, nothing, (*exchange).chunk),
	"break":         at(onAnswer, nothing, (*exchange).breakOff),
	"hold-body":     at(onAnswer, nothing, (*exchange).holdBody),
	"dribble":       at(onAnswer, duration, (*exchange).dribble),
}

func at[T any](when moment, parse func(arg string) (T, error), strike func(*exchange, T)) kind {
	return func(arg string) (fault, error) {
		value, err := parse(arg)
		return fault{when, func(x *exchange) { strike(x, value) }}, err
	}
}

// parseFaults reads "name", "name:argument", or several of them with commas between.
func parseFaults(text string) ([]fault, error) {
	var faults []fault
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, arg, _ := strings.Cut(part, ":")
		parse, ok := kinds[name]
		if !ok {
			return nil, refuse(http.StatusBadRequest, "there is no fault %q; there are %s",
				name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
		}
		f, err := parse(arg)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "fault %q: %v", part, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// askedFaults is what a request asks for by its header and its body.
func askedFaults(h http.Header, m members) string {
	asked := slices.Clone(h.Values("X-Fault"))
	var list []string
	if json.Unmarshal(m["fault"], &list) == nil {
		asked = append(asked, list...)
	} else if m.has("fault") {
		asked = append(asked, m.text("fault"))
	}
	return strings.Join(asked, ", ")
}

// faultsFor is what strikes a request: what it asked for, and what was armed for it. What is armed is used up even if
// what was asked for is wrong.
func (s *Service) faultsFor(method, reference, asked string) ([]fault, error) {
	armed := s.armory.take(method, reference)
	faults, err := parseFaults(asked)
	return append(faults, armed...), err
}

type none struct{}

func nothing(arg string) (none, error) {
	if arg != "" {
		return none{}, errors.New("it takes nothing after a colon")
	}
	return none{}, nil
}

func duration(arg string) (time.Duration, error) {
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("a duration such as 3s or 50ms comes after the colon, not %q", arg)
	}
	return d, nil
}

func status(missing int) func(string) (int, error) {
	return func(arg string) (int, error) {
		if arg == "" {
			return missing, nil
		}
		n, err := strconv.Atoi(arg)
		if err != nil || n < 200 || n > 599 {
			return 0, fmt.Errorf("a status from 200 to 599 comes after the colon, not %q", arg)
		}
		return n, nil
	}
}

func count(missing int) func(string) (int, error) {
	return func(arg string) (int, error) {
		if arg == "" {
			return missing, nil
		}
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > 1000 {
			return 0, fmt.Errorf("a number from 1 to 1000 comes after the colon, not %q", arg)
		}
		return n, nil
	}
}

func size(arg string) (int64, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("a number of bytes comes after the colon, not %q", arg)
	}
	return n, nil
}

func headerLine(arg string) ([2]string, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok || name == "" {
		return [2]string{}, fmt.Errorf("NAME=VALUE comes after the colon, not %q", arg)
	}
	return [2]string{name, value}, nil
}
