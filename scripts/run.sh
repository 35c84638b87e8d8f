#!/bin/sh
# Starts the sample order service and the gateway before it, and says what to try.
# `make run` has built both. All they keep is in .run, so that the next start goes
# on with it; `make clean` begins anew.
set -eu
cd "$(dirname "$0")/.."

PORT=${PORT:-8080}
ORDERS=${ORDERS:-127.0.0.1:8081}
# Caddy's data directory, and with it the embedded store.
XDG_DATA_HOME=$PWD/.run/data
XDG_CONFIG_HOME=$PWD/.run/data
export PORT ORDERS XDG_DATA_HOME XDG_CONFIG_HOME

.run/orders -listen "$ORDERS" -data .run/orders.jsonl &
orders=$!
./caddy run --config Caddyfile --adapter caddyfile &
caddy=$!
# The gateway finishes what is in flight, and then the order service is no longer
# needed. A shell without job control lets what it starts with & ignore Ctrl-C.
trap 'kill "$caddy" 2>/dev/null || :' INT TERM HUP
trap 'kill "$orders" 2>/dev/null || :' EXIT

# Both take a moment, or say on their own why they do not start.
sleep 1
if kill -0 "$orders" 2>/dev/null && kill -0 "$caddy" 2>/dev/null; then
	cat >&2 <<END

The gateway is at http://localhost:$PORT, the order service behind it at http://$ORDERS. Try, in another terminal,
this line twice, and then with another amount:

  curl -i http://localhost:$PORT/orders -H 'Idempotency-Key: "K1"' -H 'Content-Type: application/json' \\
    -d '{"requisition_no":"R-1","item":"bolt","amount":100,"currency":"CNY"}'

What the order service has counted:

  curl http://localhost:$PORT/stats

Ctrl-C stops both. README.md goes on from here.

END
else
	kill "$caddy" 2>/dev/null || :
	wait "$caddy" || :
	exit 1
fi

status=0
while kill -0 "$caddy" 2>/dev/null; do # wait is interrupted by Ctrl-C
	status=0
	wait "$caddy" || status=$?
done
exit "$status"
