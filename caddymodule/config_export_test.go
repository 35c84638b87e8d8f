package caddymodule

import (
	"maps"
	"slices"
)

// ConfigOptions are the options that the Caddyfile's parser knows, by the block
// that they stand in.
func ConfigOptions() map[string][]string {
	return map[string][]string{
		"idempotency":    slices.Sorted(maps.Keys(handlerOptions)),
		"fingerprint":    slices.Sorted(maps.Keys(fingerprintRules)),
		"global option":  slices.Sorted(maps.Keys(appOptions)),
		"store postgres": slices.Sorted(maps.Keys(postgresOptions)),
	}
}
