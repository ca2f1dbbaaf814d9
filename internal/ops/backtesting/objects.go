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
	text  *bufio.Reader
	line  int    // of the next byte, from 1
	found []byte // the object that next returns
}

// next returns the next object, valid until the next call; it may not be valid JSON. errMalformed stands for a line with
// something else, or for an object that breaks off. Each byte is read once, and at most maxLine are kept.
func (o *objects) next() ([]byte, error) {
	hasWords := false // the line has something that is no JSON
	for {
		c, err := o.text.ReadByte()
		switch {
		case err == io.EOF && hasWords:
			return nil, errMalformed
		case err != nil:
			return nil, err
		case c == '\n':
			o.line++
			if hasWords {
				return nil, errMalformed
			}
		case strings.IndexByte(" \t\r[],", c) >= 0:
		case c == '{' && !hasWords:
			return o.rest()
		default:
			next, _ := o.text.Peek(1)
			if c == '{' && string(next) == `"` { // a line of a log may have other braces
				return o.rest()
			}
			hasWords = true
		}
	}
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
				o.line++
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
