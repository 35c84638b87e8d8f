//go:build race

package caddymodule_test

// raceDetector says whether this test binary was built with -race; then the
// gateways are, too.
const raceDetector = true
