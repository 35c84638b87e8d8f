package caddymodule

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// sample says which request a body on the command line stands for.
type sample struct {
	config, adapter, route   string
	method, target, mimeType string
	headers                  []string
}

func fingerprintCommand() *cobra.Command {
	var s sample
	cmd := &cobra.Command{
		Use:   "fingerprint --config <file> [--route <operation>] <body file> [<other body file>]",
		Short: "Show what a route's fingerprint makes of a request body",
		Long: `
Prints the canonical form of a body and its fingerprint, as the route's rules have
it, and for two bodies what differs: so that rules can be tried before they are
switched on. Nothing is started and no store is opened. A file named - is standard
input.

The exit status is 0 if the body is accepted and, for two bodies, both are the same
request; 1 if they are not, or on any error.
`,
		Args:         cobra.RangeArgs(1, 2),
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, args []string) error { return s.print(cmd.OutOrStdout(), args) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&s.config, "config", "c", "", "Configuration file (default: the Caddyfile in this folder)")
	flags.StringVarP(&s.adapter, "adapter", "a", "", "Name of the adapter of the configuration file")
	flags.StringVarP(&s.route, "route", "r", "", "The route's operation, as configured; needed if there are several routes")
	flags.StringVar(&s.method, "method", http.MethodPost, "Method of the request")
	flags.StringVar(&s.target, "uri", "/", "Path and query of the request")
	flags.StringVar(&s.mimeType, "type", "application/json", "Content-Type of the request")
	flags.StringArrayVarP(&s.headers, "header", "H", nil, "Another header line of the request, such as \"Prefer: minimal\"")
	return cmd
}

func (s sample) print(w io.Writer, files []string) error {
	policy, err := s.policy()
	if err != nil {
		return err
	}
	var prints []canonical.Fingerprint
	for _, file := range files {
		request, err := s.request(file)
		if err != nil {
			return err
		}
		form, err := policy.Canonical(request)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		print, err := policy.Fingerprint(request)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintf(w, "%s\n  canonical    %s\n  fingerprint  %s (algorithm %d, version %q)\n",
			file, form, hex.EncodeToString(print.Sum[:]), print.Algorithm, print.Version)
		prints = append(prints, print)
	}
	if len(prints) < 2 {
		return nil
	}
	if mismatch := policy.Match(prints[0], prints[1]); mismatch != nil {
		return fmt.Errorf("they are two requests: %s", strings.Join(mismatch.Names(), ", "))
	}
	fmt.Fprintln(w, "they are the same request")
	return nil
}

// policy compiles the rules of the chosen route.
func (s sample) policy() (*canonical.Policy, error) {
	config, _, _, err := caddycmd.LoadConfig(s.config, s.adapter)
	if err != nil {
		return nil, err
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.UseNumber() // a rule's default value is exact
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	routes := make(map[string]*Handler)
	if err := collectHandlers(tree, routes); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(routes))
	switch {
	case len(routes) == 0:
		return nil, fmt.Errorf("the configuration has no idempotency handler")
	case s.route == "" && len(routes) > 1:
		return nil, fmt.Errorf("there are several routes: choose one by --route, of %q", names)
	case s.route == "":
		s.route = names[0]
	}
	handler, found := routes[s.route]
	if !found {
		return nil, fmt.Errorf("there is no route with operation %q: choose one of %q", s.route, names)
	}
	return handler.compile()
}

// collectHandlers finds the handlers of this module wherever they stand in the
// configuration, by the operation that is written there.
func collectHandlers(tree any, into map[string]*Handler) error {
	switch tree := tree.(type) {
	case []any:
		for _, element := range tree {
			if err := collectHandlers(element, into); err != nil {
				return err
			}
		}
	case map[string]any:
		if tree["handler"] == "idempotency" {
			handler := new(Handler)
			encoded, err := json.Marshal(tree)
			if err == nil {
				err = json.Unmarshal(encoded, handler)
			}
			if err != nil {
				return fmt.Errorf("reading handler: %w", err)
			}
			handler.fillDefaults()
			into[handler.operationLabel()] = handler
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(tree)) {
			if err := collectHandlers(tree[name], into); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s sample) request(file string) (*canonical.Request, error) {
	target, err := url.ParseRequestURI(s.target)
	if err != nil {
		return nil, err
	}
	body, err := readFile(file)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {s.mimeType}}
	for _, line := range s.headers {
		name, value, found := strings.Cut(line, ":")
		if !found {
			return nil, fmt.Errorf("header %q has no colon: write one such as \"Prefer: minimal\"", line)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return &canonical.Request{
		Method: s.method, Path: target.EscapedPath(), RawQuery: target.RawQuery, Header: header, Body: body,
	}, nil
}

func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}
