package main

// quotas compares a gateway whose route has both quotas of an actor with one whose
// route has none. All clients are the same actor, which is the worst case: its
// claims take turns.
func (b *bench) quotas() error {
	s := section{Title: "Quotas", Header: []string{"store", "work", "clients", "without, req/s", "with, req/s", "ratio", "p99 without, ms", "p99 with, ms", "p99 ratio"},
		Prose: "First writes of one actor, with `max_executing` and `max_new_keys` against none. To be exact across instances, claims of one actor take turns in " +
			"PostgreSQL; those of one instance take theirs together."}
	for _, kind := range kinds {
		for _, clients := range []int{8, 64} {
			var sides [2]*caddy
			for i, start := range []func(*place) (*caddy, error){
				func(p *place) (*caddy, error) { return b.gateway(p, "") },
				b.bounded,
			} {
				p, err := b.newPlace(kind)
				if err != nil {
					return err
				}
				if sides[i], err = start(p); err != nil {
					return err
				}
				defer sides[i].stop()
			}
			l := firstWrite(clients, 0, smallBody)
			c, err := b.compare(side{sides[0].addr, l}, side{sides[1].addr, l}, b.few())
			if err != nil {
				return err
			}
			s.Rows = append(s.Rows, c.row(kind, "first writes", clients))
			sides[0].stop()
			sides[1].stop()
		}
	}
	b.report.add(s)
	return nil
}
