package main

import "net/http"

// story is what the demo tells, scene by scene.
var story = []struct {
	title string
	play  func(t *teller)
}{
	{"A first request is forwarded, and its answer is stored before the client gets it", first},
	{"A retry gets the same answer, and the order service hears nothing of it", retried},
	{"The same key with another order is refused", anotherOrder},
	{"Two at once: one is executed, the other one waits and gets the same answer", twoAtOnce},
	{"The order service takes too long: nobody knows, and nobody pretends to", tooLong},
	{"A retry after the stored answer has expired is told so, and not executed", tooLate},
	{"kill -9 of the gateway in the middle of a request, and a retry", killed},
}

const (
	brief = "brief.localhost" // keeps answers for two seconds
	hasty = "hasty.localhost" // waits for one second
)

func first(t *teller) {
	r := t.post(request{key: "bolts", body: `{"requisition_no":"R-1","item":"bolt","amount":100,"currency":"CNY"}`})
	t.want(r, http.StatusCreated, "")
	t.wantReplayed(r, false)
	t.counted("R-1", 1, 1)
}

func retried(t *teller) {
	t.say("Other white space, another order of members, 1e2 for 100: it is the same order.")
	r := t.post(request{key: "bolts", body: `{"amount": 1e2, "currency": "CNY", "item": "bolt", "requisition_no": "R-1", "sent_at": "later"}`})
	t.want(r, http.StatusCreated, "")
	t.wantReplayed(r, true)
	t.counted("R-1", 1, 1)
}

func anotherOrder(t *teller) {
	r := t.post(request{key: "bolts", body: `{"requisition_no":"R-1","item":"bolt","amount":100000,"currency":"CNY"}`})
	t.want(r, http.StatusUnprocessableEntity, "key-reused")
	t.counted("R-1", 1, 1)
}

func twoAtOnce(t *teller) {
	order := request{key: "nuts", body: `{"requisition_no":"R-2","item":"nut","amount":7,"currency":"CNY"}`}
	held := order
	held.fault = "hold"

	t.say("The order service holds the first one until the second one is there.")
	one := t.begin(held)
	t.untilHeld(1)
	two := t.begin(order)
	t.untilInside(2)
	t.release()

	first, second := t.end(one), t.end(two)
	t.want(first, http.StatusCreated, "")
	t.want(second, http.StatusCreated, "")
	t.wantReplayed(first, false)
	t.wantReplayed(second, true)
	t.wantSame(first, second)
	t.counted("R-2", 1, 1)
}

func tooLong(t *teller) {
	order := request{host: hasty, key: "screws", body: `{"requisition_no":"R-3","item":"screw","amount":3,"currency":"CNY"}`}
	held := order
	held.fault = "hold"

	r := t.post(held)
	t.want(r, http.StatusGatewayTimeout, "outcome-unknown")
	t.counted("R-3", 1, 0)

	t.say("The client tries again. The key stays closed:")
	t.want(t.post(order), http.StatusConflict, "outcome-unknown")

	t.say("Now the order service comes round, and makes the order after all.")
	t.release()
	t.untilOrders("R-3", 1)
	t.say("It is well that the retry was not sent on:")
	t.want(t.post(order), http.StatusConflict, "outcome-unknown")
	t.counted("R-3", 1, 1)
}

func tooLate(t *teller) {
	order := request{host: brief, key: "washers", body: `{"requisition_no":"R-4","item":"washer","amount":4,"currency":"CNY"}`}
	r := t.post(order)
	t.want(r, http.StatusCreated, "")

	t.say("Answers are kept for two seconds here. A client that asks until then, and after:")
	r, replays := t.postWhile(order, func(r reply) bool { return r.status == http.StatusCreated })
	t.say("(%d times the stored answer, and then)", replays)
	t.show(r)
	t.want(r, http.StatusGone, "response-expired")
	t.counted("R-4", 1, 1)
}

func killed(t *teller) {
	order := request{host: hasty, key: "rivets", body: `{"requisition_no":"R-5","item":"rivet","amount":5,"currency":"CNY"}`}
	held := order
	held.fault = "hold"

	gone := t.begin(held)
	t.untilHeld(1)
	t.say("The request is with the order service. kill -9 of the gateway:")
	t.stage.Gateway.Kill()
	t.endWithoutAnswer(gone)
	t.say("The order service knows nothing of that, and makes the order.")
	t.release()
	t.untilOrders("R-5", 1)

	t.say("The gateway is started again, with the records that it left. The client tries again:")
	t.restart()
	r := t.post(order)
	t.want(r, http.StatusConflict, "in-flight", "outcome-unknown")

	t.say("That lasts for as long as a gateway could still be waiting for the order service (the lease: 16 s). Then:")
	r, _ = t.postWhile(order, func(r reply) bool { return r.slug() == "in-flight" })
	t.show(r)
	t.want(r, http.StatusConflict, "outcome-unknown")
	t.counted("R-5", 1, 1)
}
