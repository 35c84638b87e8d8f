package caddymodule

import (
	"maps"
	"slices"
)

// ConfigOptions are the options that the Caddyfile's parser knows, by the block
// that they stand in.
func ConfigOptions() map[string][]string {
	return map[string][]string{
		"idempotency":        slices.Sorted(maps.Keys(handlerOptions)),
		"fingerprint":        slices.Sorted(maps.Keys(fingerprintRules)),
		"global option":      slices.Sorted(maps.Keys(appOptions)),
		"natural_key":        slices.Sorted(maps.Keys(naturalKeyOptions)),
		"verify":             slices.Sorted(maps.Keys(verifyOptions)),
		"idempotency_status": slices.Sorted(maps.Keys(statusOptions)),
		"store postgres":     slices.Sorted(maps.Keys(postgresOptions)),
	}
}
