#!/bin/sh
# Builds ./caddy with this checkout's module, by xcaddy, and the Caddy of go.mod.
#
#	./xcaddy.sh                                          # ./caddy
#	./xcaddy.sh --with github.com/mholt/caddy-ratelimit  # and another module
#
# Needs Go and nothing else: xcaddy itself is fetched into .run/bin.
set -eu
cd "$(dirname "$0")"

xcaddy=v0.4.5
module=$(go list -m)
caddy=$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)

say() { echo "xcaddy.sh: $*" >&2; }

# A directory for each version, so that another version is another file.
bin=$PWD/.run/bin/xcaddy-$xcaddy
if [ ! -x "$bin/xcaddy" ]; then
	say "fetching xcaddy $xcaddy"
	GOBIN=$bin go install "github.com/caddyserver/xcaddy/cmd/xcaddy@$xcaddy"
fi

# xcaddy asks the module proxy for the published versions of this module, although
# it is replaced by the checkout. While there are none, a proxy may say so in a way
# that ends the build (anything but 404 or 410 does). So the question is answered
# here: a proxy of files comes first, which knows this module, and no version of it.
versions=.run/proxy/$module/@v
mkdir -p "$versions"
: >"$versions/list"
GOPROXY="file://$PWD/.run/proxy,$(go env GOPROXY)"
export GOPROXY

say "building Caddy $caddy with $module"
"$bin/xcaddy" build "$caddy" --output caddy --with "$module=." "$@"
say "built ./caddy"
