package caddymodule

import (
	"errors"
	"fmt"

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
	if err := checkNaturalKeyPaths(k.Paths); err != nil {
		return err
	}
	return readBlock(d, block[*NaturalKey]{of: "natural_key", prefix: "natural_key: ", options: naturalKeyOptions}, k)
}

var naturalKeyOptions = map[string]readOption[*NaturalKey]{
	"on_clash": func(k *NaturalKey, d *caddyfile.Dispenser) error {
		return one(d, &k.OnClash, checked(checkOnClash))
	},
	"optional": func(k *NaturalKey, d *caddyfile.Dispenser) error { return flag(d, &k.Optional) },
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
	line := d.Token()
	switch args := d.RemainingArgs(); len(args) {
	case 1:
		v.URL = args[0]
	case 2:
		v.Method, v.URL = args[0], args[1]
	default:
		return fmt.Errorf("there %s: write one URL, after GET or HEAD as needed, such as `verify GET http://orders:8080/orders?client_ref={idempotency.key}&user={idempotency.actor}`", count(args))
	}
	if err := v.checkTarget(); err != nil {
		return err
	}
	if err := readBlock(d, block[*Verifier]{of: "verify", prefix: "verify: ", options: verifyOptions, repeatable: []string{"header"}}, v); err != nil {
		return err
	}
	if v.Exists.Status == 0 {
		return errorAt(line, errors.New("verify: exists is not set: write the status that means that the object exists, such as `exists 200`"))
	}
	filled := *v // as it will be provisioned, but for the route's upstream_timeout
	filled.fillDefaults(0)
	if err := filled.check(); err != nil {
		return errorAt(line, fmt.Errorf("verify: %w", err))
	}
	return nil
}

var verifyOptions = map[string]readOption[*Verifier]{
	"header": func(v *Verifier, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) != 2 {
			return errors.New("there " + count(args) + ": write a name and a value, such as `header Authorization \"Bearer {env.VERIFY_TOKEN}\"`")
		}
		if v.Headers == nil {
			v.Headers = make(map[string]string)
		}
		if err := checkProbeHeader(args[0], args[1], v.Headers); err != nil {
			return err
		}
		v.Headers[args[0]] = args[1]
		return nil
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
	"status": func(v *Verifier, d *caddyfile.Dispenser) error { return one(d, &v.Status, number(200, 299)) },
	"body":   func(v *Verifier, d *caddyfile.Dispenser) error { return one(d, &v.Body, checked(checkPath)) },
	"location": func(v *Verifier, d *caddyfile.Dispenser) error {
		return one(d, &v.Location, checked(checkProbeLocation))
	},
}

func (e *Expectation) unmarshal(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("there %s: write a status, and a path into the body as needed, in quotes if it has spaces, such as `200 orders.#>0`", count(args))
	}
	status, err := number(200, 599)(args[0])
	if err != nil {
		return err
	}
	e.Status = status
	if len(args) == 2 {
		e.Path = args[1]
		return checkExpectedPath(e.Path)
	}
	return nil
}
