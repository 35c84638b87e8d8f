package main

import "fmt"

// designs compares ways in which the gateway works by turns with each other: how a
// replay is read near the end of its window and far from it, and statements that
// are prepared with such as are not, which is what a pooler asks for.
func (b *bench) designs() error {
	s := section{Title: "Designs that compete", Header: []string{"work", "clients", "one", "other", "one, req/s", "other, req/s", "ratio", "server CPU of one, µs", "of other, µs"},
		Prose: "The gateway on PostgreSQL against itself. A replay far from the end of its window is a plain read that shares a transaction with others; " +
			"within the last minute it locks the record (`FOR SHARE`), in a transaction of its own. With `pooler transaction` no statement is prepared."}
	for _, d := range []struct {
		replays    bool
		one, other string
		start      func(*place) (*caddy, error)
	}{
		{true, "plain read", "`FOR SHARE`", func(p *place) (*caddy, error) {
			return b.startCaddy("idempotency {\n"+p.store()+"\n}", fmt.Sprintf(protected, "replay_for 55s"))
		}},
		{true, "prepared", "not prepared", b.pooled},
		{false, "prepared", "not prepared", b.pooled},
	} {
		for _, clients := range []int{8, 64} {
			row, err := b.oneAndOther(d.replays, clients, d.start)
			if err != nil {
				return err
			}
			name := "first writes"
			if d.replays {
				name = "replays"
			}
			s.Rows = append(s.Rows, append([]string{name, fmt.Sprint(clients), d.one, d.other}, row...))
		}
	}
	b.report.add(s)
	return nil
}

// pooled starts a gateway for a pooler in transaction mode, without one.
func (b *bench) pooled(p *place) (*caddy, error) {
	return b.startCaddy("idempotency {\n"+p.store()+" {\npooler transaction\n}\n}", fmt.Sprintf(protected, ""))
}

// oneAndOther lets the gateway as it comes and another take turns, each on a place
// of its own. Keys to replay are made just before, as one of them may keep their
// answers for less than a minute.
func (b *bench) oneAndOther(replays bool, clients int, startOther func(*place) (*caddy, error)) ([]string, error) {
	var places [2]*place
	var sides [2]side
	var gateways [2]*caddy
	for i, start := range []func(*place) (*caddy, error){
		func(p *place) (*caddy, error) { return b.gateway(p, "") },
		startOther,
	} {
		var err error
		if places[i], err = b.newPlace(onPostgres); err != nil {
			return nil, err
		}
		if gateways[i], err = start(places[i]); err != nil {
			return nil, err
		}
		defer gateways[i].stop()
		l := firstWrite(clients, 0, smallBody)
		if replays {
			there, err := b.complete(gateways[i], smallBody)
			if err != nil {
				return nil, err
			}
			l = replay(clients, smallBody, there)
		}
		sides[i] = side{gateways[i].addr, l}
	}
	c, err := b.compare(sides[0], sides[1], b.few())
	if err != nil {
		return nil, err
	}
	row := []string{fmt.Sprintf("%.0f", c.Base.Median), fmt.Sprintf("%.0f", c.Side.Median), c.Ratio.format("%.2f")}
	for i := range sides {
		account, err := b.account(places[i], gateways[i], sides[i].load)
		if err != nil {
			return nil, err
		}
		row = append(row, fmt.Sprintf("%.0f", account.server))
	}
	return row, nil
}
