package backtesting

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// objects finds the JSON objects in a text: one in a line, over several lines, or in an array, with anything between
// that a program writes to its log.
type objects struct {
	text   *bufio.Reader
	line   int    // of the next byte, from 1
	isUsed bool   // that line has something
	found  []byte // the object that next returns
}

// next returns the next object, valid until the next call; it may not be valid JSON. errEmpty and errMalformed stand for
// a line without one; errMalformed also for an object that breaks off. Each byte is read once, and at most maxLine are
// kept.
func (o *objects) next() ([]byte, error) {
	hasWords := false // the line has something that is no JSON
	for {
		c, err := o.text.ReadByte()
		if err == io.EOF && hasWords {
			return nil, errMalformed
		}
		if err != nil {
			return nil, err
		}

		if c == '\n' {
			isEmpty := !o.isUsed
			o.line, o.isUsed = o.line+1, false
			if hasWords {
				return nil, errMalformed
			}
			if isEmpty {
				return nil, errEmpty
			}
			continue
		}

		if c == ' ' || c == '\t' || c == '\r' {
			continue
		}

		o.isUsed = true
		next, _ := o.text.Peek(1)
		if c == '{' && (!hasWords || string(next) == `"`) { // a line of a log may have other braces
			break
		}

		hasWords = hasWords || strings.IndexByte("[],", c) < 0
	}

	return o.rest()
}

// rest returns the object whose first byte was read just now.
func (o *objects) rest() ([]byte, error) {
	o.found = append(o.found[:0], '{')
	first := o.line
	last, inText, isEscaped := byte('{'), false, false
	for depth := 1; depth > 0; {
		if _, err := o.text.Peek(1); err == io.EOF {
			return nil, errMalformed
		} else if err != nil {
			return nil, err
		}

		read, _ := o.text.Peek(min(o.text.Buffered(), maxLine-len(o.found)))
		if len(read) == 0 {
			return nil, fmt.Errorf("line %d: a JSON object of more than %d bytes", first, maxLine)
		}

		n := 0
		for isWhole := false; n < len(read) && !isWhole; n++ {
			c := read[n]
			switch {
			case c == '\n' && inText: // which JSON does not allow: the text has no end
				o.line, o.isUsed = o.line+1, false
				_, _ = o.text.Discard(n + 1)
				return nil, errMalformed

			case c == '{' && last == '\n': // programs indent those within an object: this one is another
				_, _ = o.text.Discard(n)
				return nil, errMalformed

			case c == '\n':
				o.line++

			case isEscaped:
				isEscaped = false

			case inText:
				isEscaped, inText = c == '\\', c != '"'

			case c == '"':
				inText = true

			case c == '{' || c == '[':
				depth++

			case c == '}' || c == ']':
				depth--
				isWhole = depth == 0
			}

			last = c
		}

		o.found = append(o.found, read[:n]...)
		_, _ = o.text.Discard(n)
	}

	return o.found, nil
}
