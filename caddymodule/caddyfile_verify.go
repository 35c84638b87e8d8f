package caddymodule

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalNaturalKey reads
//
//	natural_key <path...> {
//		on_clash conflict|replay
//		optional
//	}
func unmarshalNaturalKey(h *Handler, d *caddyfile.Dispenser) error {
	k := &NaturalKey{Paths: d.RemainingArgs()}
	h.NaturalKey = k
	if err := readBlock(d, block[*NaturalKey]{of: "natural_key", options: naturalKeyOptions}, k); err != nil {
		return err
	}
	return h.checkNaturalKey()
}

var naturalKeyOptions = map[string]readOption[*NaturalKey]{
	"on_clash": func(k *NaturalKey, d *caddyfile.Dispenser) error { return one(d, &k.OnClash, text) },
	"optional": func(k *NaturalKey, d *caddyfile.Dispenser) error {
		k.Optional = true
		if d.NextArg() {
			return fmt.Errorf("%q is one too many: it takes no value", d.Val())
		}
		return nil
	},
}

// unmarshalVerify reads
//
//	verify [GET|HEAD] <url> {
//		header   <name> <value>
//		exists   <status> [<path>]
//		absent   <status> [<path>]
//		after    <duration>
//		give_up  <duration>
//		timeout  <duration>
//		status   <status>
//		body     <path>
//		location <template>
//	}
func unmarshalVerify(h *Handler, d *caddyfile.Dispenser) error {
	v := new(Verifier)
	h.Verify = v
	switch args := d.RemainingArgs(); len(args) {
	case 1:
		v.URL = args[0]
	case 2:
		v.Method, v.URL = args[0], args[1]
	default:
		return errors.New("there is no URL: write one such as `verify GET http://orders:8080/orders?client_ref={idempotency.key}`")
	}
	if err := readBlock(d, block[*Verifier]{of: "verify", options: verifyOptions, repeatable: []string{"header"}}, v); err != nil {
		return err
	}
	if v.Exists.Status == 0 {
		return errors.New("exists is not set: write the status that means that the object exists, such as `exists 200`")
	}
	// As it will be provisioned, but for the options of the route.
	filled := *v
	setDefault(&filled.Method, http.MethodGet)
	setDefault(&filled.After, caddy.Duration(DefaultVerifyAfter))
	setDefault(&filled.GiveUp, caddy.Duration(DefaultVerifyGiveUp))
	setDefault(&filled.Timeout, caddy.Duration(DefaultVerifyTimeout))
	setDefault(&filled.Status, DefaultVerifyStatus)
	return filled.check()
}

var verifyOptions = map[string]readOption[*Verifier]{
	"header": func(v *Verifier, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) != 2 {
			return errors.New("write a name and a value, such as `header Authorization \"Bearer {env.VERIFY_TOKEN}\"`")
		}
		if v.Headers == nil {
			v.Headers = make(map[string]string)
		}
		v.Headers[args[0]] = args[1]
		return checkHeaderName(args[0])
	},
	"exists": func(v *Verifier, d *caddyfile.Dispenser) error { return v.Exists.unmarshal(d) },
	"absent": func(v *Verifier, d *caddyfile.Dispenser) error {
		v.Absent = new(Expectation)
		return v.Absent.unmarshal(d)
	},
	"after": func(v *Verifier, d *caddyfile.Dispenser) error {
		return one(d, &v.After, duration(rangeRetention))
	},
	"give_up": func(v *Verifier, d *caddyfile.Dispenser) error {
		return one(d, &v.GiveUp, duration(rangeRetention))
	},
	"timeout": func(v *Verifier, d *caddyfile.Dispenser) error {
		return one(d, &v.Timeout, duration(rangeStoreCall))
	},
	"status":   func(v *Verifier, d *caddyfile.Dispenser) error { return one(d, &v.Status, number(200, 299)) },
	"body":     func(v *Verifier, d *caddyfile.Dispenser) error { return one(d, &v.Body, checked(checkPath)) },
	"location": func(v *Verifier, d *caddyfile.Dispenser) error { return one(d, &v.Location, text) },
}

func (e *Expectation) unmarshal(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return errors.New("write a status, and a path into the body as needed, such as `200 orders.#>0`")
	}
	status, err := number(200, 599)(args[0])
	if err != nil {
		return err
	}
	e.Status = status
	if len(args) == 2 {
		e.Path = args[1]
	}
	return nil
}
