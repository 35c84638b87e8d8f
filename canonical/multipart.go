package canonical

import (
	"bytes"
	"crypto/sha256"
	"io"
	"mime"
	"mime/multipart"
)

// mostFormParts bounds the parts of a multipart form. mime/multipart bounds their headers.
const mostFormParts = 1000

// multipart encodes a body of multipart/form-data: for each part its name, file name, media type, transfer encoding and
// content. The boundary, and what stands before the first and after the last one, do not count.
func (e *encoder) multipart(boundary string) {
	start, first := len(e.out), len(e.entries)
	e.out = append(e.out, tagForm)
	reader := multipart.NewReader(bytes.NewReader(e.body), boundary)
	for count := 0; ; count++ {
		part, err := reader.NextRawPart()
		if err == io.EOF && e.hasLastBoundary(boundary) {
			break
		}
		if err != nil {
			e.fail(-1, "the parts of the form cannot be read to their end")
			return
		}
		if count == mostFormParts {
			e.refuse(TooLarge, -1, "the form has more than 1000 parts")
			return
		}
		name := part.FormName()
		if name == "" {
			e.fail(-1, "a part of the form has no name")
			return
		}
		at := len(e.out)
		e.putName([]byte(name))
		if !e.part(part) {
			e.inName([]byte(name), e.fail(-1, "the parts of the form cannot be read to their end"))
			return
		}
		e.entries = append(e.entries, entry{sortKey([]byte(name)), at, len(e.out)})
	}
	e.fields(start, first)
}

// hasLastBoundary tells a form that has ended from one that breaks off within the headers of a part: the reader says
// io.EOF to both.
func (e *encoder) hasLastBoundary(boundary string) bool {
	last := []byte("--" + boundary + "--")
	return bytes.HasPrefix(e.body, last) || bytes.Contains(e.body, append([]byte("\n"), last...))
}

// part encodes the content of a part. One that is plain text of moderate size is a field like those of other forms, so
// that rules can act on it.
func (e *encoder) part(part *multipart.Part) bool {
	const mostField = 4096
	_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	file, isFile := disposition["filename"]
	kind, coding := part.Header.Get("Content-Type"), part.Header.Get("Content-Transfer-Encoding")
	buf, n := make([]byte, mostField), 0
	var err error
	for err == nil && n < len(buf) {
		var more int
		more, err = part.Read(buf[n:])
		n += more
	}
	if err == io.EOF && !isFile && kind == "" && coding == "" {
		e.putText(buf[:n])
		return true
	}
	h := sha256.New()
	h.Write(buf[:n])
	if err == nil {
		_, err = io.Copy(h, part)
	}
	if err != nil && err != io.EOF {
		return false
	}
	isFileByte := byte(0)
	if isFile {
		isFileByte = 1
	}
	e.out = append(e.out, tagPart, isFileByte)
	for _, s := range []string{file, kind, coding} {
		e.out = append(appendUvarint(e.out, len(s)), s...)
	}
	e.out = h.Sum(e.out)
	return true
}
