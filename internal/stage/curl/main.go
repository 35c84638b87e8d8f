// Command curl stands in for curl on a machine that has none, as far as the
// project's documents use it: -s -i -u -H -X -d and a URL of http.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var target, body string
	method, head := http.MethodGet, false
	header := "User-Agent: curl\r\nAccept: */*\r\n"
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		value := func() (v string) {
			if len(args) > 0 {
				v, args = args[0], args[1:]
			}
			return v
		}
		switch arg {
		case "-s":
		case "-i", "-si":
			head = true
		case "-u":
			header += "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(value())) + "\r\n"
		case "-H":
			header += value() + "\r\n"
		case "-X":
			method = value()
		case "-d":
			method, body = http.MethodPost, value()
		default:
			if strings.HasPrefix(arg, "-") {
				return fmt.Errorf("option %s is not known to this stand-in", arg)
			}
			target = arg
		}
	}
	u, err := url.Parse("http://" + strings.TrimPrefix(target, "http://"))
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if body != "" {
		header += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", method, u.RequestURI(), u.Host, header, body); err != nil {
		return err
	}
	return show(conn, head)
}

// show prints the answer, and its head as it came where it is asked for.
func show(conn io.Reader, head bool) error {
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if head {
		before, _, _ := bytes.Cut(raw.Bytes(), []byte("\r\n\r\n"))
		fmt.Printf("%s\r\n\r\n", before)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
