package backtesting

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// objects finds the JSON objects in a text: one in a line, over several lines, or in an array, with anything between
// that a program writes to its log.
type objects struct {
	text    *bufio.Reader
	decoder jsontext.Decoder // of one object at a time, from Read
	line    int              // of the next byte, from 1
	last    byte             // that Read returned; 0: an object begins
	size    int              // of what it returned of the object
}

// next returns the next object, valid until the next call. errMalformed stands for a line with something else, or for what
// begins like an object and is not one. Each byte is read once, and at most maxLine are kept.
func (o *objects) next() ([]byte, error) {
	hasWords := false // the line has something that is no JSON
	for {
		next, err := o.text.Peek(2)
		if len(next) == 0 {
			return nil, err
		}

		c := next[0]
		if c == '{' && (!hasWords || string(next) == `{"`) { // a line of a log may have other braces
			break
		}

		_, _ = o.text.Discard(1)
		switch {
		case c == '\n':
			o.line++
			if hasWords {
				return nil, errMalformed
			}
		case strings.IndexByte(" \t\r[],", c) < 0:
			hasWords = true
		}
	}

	o.last, o.size = 0, 0
	o.decoder.Reset(o, asIs...)
	object, err := o.decoder.ReadValue()
	switch {
	case o.size >= maxLine:
		return nil, fmt.Errorf("line %d: a JSON object of more than %d bytes", o.line, maxLine)
	case errors.As(err, new(*jsontext.SyntacticError)):
		return nil, errMalformed
	}

	return object, err
}

// Read implements io.Reader for the decoder, and reads nothing beyond the object: the bytes up to the end of a line, or to
// a brace, which may be the last one. It ends before a line that begins with a brace, which is another object: programs
// indent those within one.
func (o *objects) Read(p []byte) (int, error) {
	next, err := o.text.Peek(1)
	if err != nil {
		return 0, err
	}
	if o.last == '\n' && next[0] == '{' || o.size >= maxLine {
		return 0, io.EOF
	}

	next, _ = o.text.Peek(min(o.text.Buffered(), len(p)))
	if end := bytes.IndexAny(next, "}\n"); end >= 0 {
		next = next[:end+1]
	}

	n := copy(p, next)
	o.last = p[n-1]
	o.size += n
	o.line += bytes.Count(next, []byte{'\n'})
	_, _ = o.text.Discard(n)

	return n, nil
}
