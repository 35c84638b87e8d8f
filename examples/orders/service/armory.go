package service

import (
	"net/http"
	"slices"
	"sync"
)

// Arming is a fault that waits for requests to strike. It is not kept over a restart: a fault that kills the service
// would strike the next one too.
type Arming struct {
	Fault string `json:"fault"`           // such as "delay:3s" or "hold, die-after"
	For   string `json:"for,omitempty"`   // an argument given apart: fault "delay" for "3s"
	Times int    `json:"times,omitempty"` // how many requests it strikes; 0 is one, less is all until it is disarmed
	Ref   string `json:"ref,omitempty"`   // strikes executions of this reference only
	// Method narrows it to one method. Without it, it strikes writes; a read is struck only by a fault armed for GET.
	Method string `json:"method,omitempty"`

	faults []fault
}

func (a *Arming) strikes(method, reference string) bool {
	if a.Ref != "" && a.Ref != reference {
		return false
	}
	if a.Method != "" {
		return a.Method == method
	}
	return method == http.MethodPost || method == http.MethodPatch
}

// armory holds what is armed, oldest first.
type armory struct {
	mu    sync.Mutex
	armed []Arming
}

func (y *armory) arm(a Arming) error {
	if a.For != "" {
		a.Fault, a.For = a.Fault+":"+a.For, ""
	}
	if a.Times == 0 {
		a.Times = 1
	}
	var err error
	if a.faults, err = parseFaults(a.Fault); err != nil {
		return err
	}
	if len(a.faults) == 0 {
		return refuse(http.StatusBadRequest, `no fault is named; {"fault":"delay","for":"3s","times":1} names one`)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.armed = append(y.armed, a)
	return nil
}

func (y *armory) disarm() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.armed = nil
}

// take uses up one time of the oldest arming that strikes the request.
func (y *armory) take(method, reference string) []fault {
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := range y.armed {
		a := &y.armed[i]
		if !a.strikes(method, reference) {
			continue
		}
		faults := a.faults
		if a.Times--; a.Times == 0 {
			y.armed = slices.Delete(y.armed, i, i+1)
		}
		return faults
	}
	return nil
}

// list is never nil, so that it is a list in JSON.
func (y *armory) list() []Arming {
	y.mu.Lock()
	defer y.mu.Unlock()
	return append([]Arming{}, y.armed...)
}
