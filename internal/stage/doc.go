// Package stage puts on what a reader of the README puts on: the gateway and the
// sample order service, as real processes on free ports, with all they keep in
// one directory.
//
//	s, err := stage.Open(ctx, stage.Config{Caddyfile: "Caddyfile"})
//	defer s.Close()
//	...
//	s.Gateway.Kill()            // kill -9
//	err = s.StartGateway(ctx)   // the same address, the same records
//
// The demo and the check of the README use it. Tests of the gateway's parts have
// closer ways.
package stage
