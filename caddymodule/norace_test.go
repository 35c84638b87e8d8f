//go:build !race

package caddymodule_test

const raceDetector = false
