package service

import "net/http"

func (s *Service) createOrder(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, func(a arrival) (*reply, error) {
		o := newOrder()
		o.Ref, o.ClientRef = a.members.text("ref"), a.clientRef
		o.set(a.members)
		o, err := s.ledger.commit(a.n, o)
		if err != nil {
			return nil, err
		}
		p := jsonReply(http.StatusCreated, o)
		p.header.Set("Location", "/orders/"+o.ID)
		return p, nil
	})
}

func (s *Service) changeOrder(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, func(a arrival) (*reply, error) {
		o, err := s.ledger.change(a.n, r.PathValue("id"), a.members)
		return jsonReply(http.StatusOK, o), err
	})
}

func (s *Service) showOrder(w http.ResponseWriter, r *http.Request) {
	s.read(w, r, func() (*reply, error) {
		o, err := s.ledger.order(r.PathValue("id"))
		return jsonReply(http.StatusOK, o), err
	})
}

func (s *Service) listOrders(w http.ResponseWriter, r *http.Request) {
	s.read(w, r, func() (*reply, error) {
		query := r.URL.Query()
		asked := func(name, value string) bool {
			return !query.Has(name) || query.Get(name) == value
		}
		found := s.ledger.find(func(o Order) bool {
			return asked("client_ref", o.ClientRef) && asked("requisition_no", o.RequisitionNo) && asked("ref", o.Ref)
		})
		if len(found) == 0 && query.Get("missing") == "404" {
			return nil, errNoOrder
		}
		return jsonReply(http.StatusOK, map[string][]Order{"orders": found}), nil
	})
}
