package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// change returns the connection string with some settings replaced. It
// understands both forms, URL and "name=value", as the tester may give either.
func change(dsn string, settings map[string]string) string {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		for name, value := range settings { // the last of two counts
			value = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)
			dsn += fmt.Sprintf(" %s='%s'", name, value)
		}
		return dsn
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn // whoever connects with it will say what is wrong
	}
	query := u.Query()
	for name, value := range settings {
		query.Del(name)
		switch name {
		case "dbname":
			u.Path = "/" + value
		case "host":
			u.Host = net.JoinHostPort(value, u.Port())
		case "port":
			u.Host = net.JoinHostPort(u.Hostname(), value)
		case "user":
			password, _ := u.User.Password()
			u.User = url.UserPassword(value, password)
		case "password":
			u.User = url.UserPassword(u.User.Username(), value)
		default:
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
