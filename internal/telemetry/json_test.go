package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// tokensOf returns what a jsonReader makes of text: its tokens, if walk is true, else its values.
func tokensOf(text []byte, walk bool) (all []string, err error) {
	var r jsonReader
	r.reset(text)
	for {
		c := r.peek()
		if r.ends() && r.depth == 0 {
			return all, io.EOF
		}
		if walk && strings.IndexByte("{}[]", c) >= 0 && c != 0 {
			if err = r.bracket(); err != nil {
				return all, err
			}
			all = append(all, string(c))
			continue
		}
		v, err := r.value()
		if err != nil {
			return all, err
		}
		all = append(all, string(v))
	}
}

// judged is tokensOf by package jsontext.
func judged(text []byte, walk bool) (all []string, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		k := d.PeekKind()
		if walk && (k == '{' || k == '}' || k == '[' || k == ']') {
			if _, err = d.ReadToken(); err != nil {
				return all, err
			}
			all = append(all, string(k))
			continue
		}
		v, err := d.ReadValue()
		if err != nil {
			return all, err
		}
		all = append(all, string(v))
	}
}

// wantedIn returns the values of the members with the name walks, in any case, of the objects in text, a sequence of
// values. It passes over the others as a scanner does.
func wantedIn(text []byte) (all []string, err error) {
	p, _ := parsePath("walks")
	wanted := p.starts[0]
	var r jsonReader
	for r.reset(text); err == nil; {
		if r.ends() {
			return all, io.EOF
		}
		if r.peek() != '{' {
			_, err = r.value()
			continue
		}
		for err = r.bracket(); err == nil; {
			var name []byte
			if name, _, err = r.seek(wanted); name == nil {
				break
			}
			name, _ = jsontext.AppendUnquote(nil, name)
			var v []byte
			if err == nil {
				v, err = r.value()
			}
			if err == nil && bytes.EqualFold(name, p.text) {
				all = append(all, string(v))
			}
		}
		if err == nil {
			err = r.bracket()
		}
	}
	return all, err
}

// judgedWanted is wantedIn by package jsontext.
func judgedWanted(text []byte) (all []string, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for err == nil {
		if d.PeekKind() != '{' {
			_, err = d.ReadValue()
			continue
		}
		for _, err = d.ReadToken(); err == nil && d.PeekKind() != '}'; {
			var name, v jsontext.Value
			if name, err = d.ReadValue(); err != nil {
				break
			}
			name, _ = jsontext.AppendUnquote(nil, name)
			if v, err = d.ReadValue(); err == nil && bytes.EqualFold(name, []byte("walks")) {
				all = append(all, string(v))
			}
		}
		if err == nil {
			_, err = d.ReadToken()
		}
	}
	return all, err
}

// tooDeep reports whether text is nested deeper than a jsonReader reads, before it is broken.
func tooDeep(text []byte) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for d.StackDepth() <= maxDepth {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
	}
	return true
}

// compare holds a jsonReader to what jsontext says of text.
func compare(t interface{ Errorf(string, ...any) }, text []byte) {
	if tooDeep(bytes.Clone(text)) {
		if _, err := tokensOf(text, true); !errors.Is(err, errNotJSON) {
			t.Errorf("%.100q is too deep: %v", text, err)
		}
		return
	}
	wanted, err := wantedIn(text)
	want, judgement := judgedWanted(bytes.Clone(text))
	if errors.Is(err, io.EOF) != errors.Is(judgement, io.EOF) || fmt.Sprintf("%q", wanted) != fmt.Sprintf("%q", want) {
		t.Errorf("%q: wanted are %q, %v; jsontext: %q, %v", text, wanted, err, want, judgement)
	}
	for _, walk := range []bool{false, true} {
		got, err := tokensOf(text, walk)
		want, judgement := judged(bytes.Clone(text), walk)
		if errors.Is(err, io.EOF) != errors.Is(judgement, io.EOF) || !errors.Is(err, io.EOF) && !errors.Is(err, errNotJSON) || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q (walked: %v): %q, %v; jsontext: %q, %v", text, walk, got, err, want, judgement)
		}
	}
}

// Every byte at every place of a text is what it is.
func TestJSONText(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := []byte(`["` + strings.Repeat("a", 20) + `nx",1]`)
			text[2+at] = byte(c)
			compare(t, text)
		}
	}
}

// Whatever is at a place of members that are passed over, or of those that are wanted, is what it is.
func TestJSONMembers(t *testing.T) {
	for _, text := range []string{
		`{"a":"text","b":12.5,"c":true,"wall":[1,{"walks":2}],"walks":3,"d":0,"e":-1}`,
		`{"a":10,"walks" : 1e5, "b":{},"Walks":"x","w":1.0,"c":true}`,
		`{"w\u0061lks":1,"b":"\n","WALKS":2,"walks.a":3,"walKs":4,"walkſ":5,"wa":false,"a":` + "\"" + strings.Repeat("long ", 9) + `"}`,
	} {
		for at := range text {
			for _, c := range []byte("\"\\{}[]:,.-+01eEtwW \n\x00\x1f\x7f\x80\xff") {
				other := []byte(text)
				other[at] = c
				compare(t, other)
			}
			compare(t, []byte(text[:at]))
		}
	}
}

// What is JSON is decided as jsontext decides it, up to the same place.
func TestJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, text := range []string{
		``, ` `, `1`, `1 2`, `12`, `{}{}`, `{}[]1"a"`, `truefalse`, `1true`, `"a""b"`, `01`, `-`, `-0`, `1.`, `.5`, `1e`, `1e+`, `1E-7`, `+1`, `1,2`,
		`[]`, `[1]`, `[1,]`, `[,1]`, `[,]`, `[1 2]`, `[1,2]`, `[1`, `[1,`, `]`, `[]]`, `{]`, `[}`, `{"a":1]`,
		`{"a":1}`, `{"a" 1}`, `{"a":}`, `{"a"}`, `{"a":1,}`, `{,"a":1}`, `{"a":1 "b":2}`, `{"a":1,"b":2}`, `{"a""b":1000}`, `{"a" "b":1000}`, `{"a":1"b":2000}`, `{"a"::1}`, `{1:1}`, `{a:1}`, `{"a":1,,"b":2}`, `{"a":1`, `{"a":1,`, `{"a":`, `{"a`,
		`{"a":{"b":[{"c":[[],{}]}]},"a":null}`, `nul`, `nulll`, `tru`, `falsey`, `NaN`, `Infinity`, `'a'`, `"\u12"`, `"\u12g4"`, `"\ud800"`, `"\ud800\ud800"`, `"\x"`, `"\`, "\"\n\"", "\"\x00\"", "\"\x7f\"", "\"\xff\"", "\"\xc3\"", "\ufeff1",
		"\v1", "\x00", "1\x00", `:`, `:1`, `,`, `{"a":1}:`, `{"a":1},`, `"a":1`,
		deep(64), deep(65), deep(10_000), strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
	} {
		compare(t, []byte(text))
	}
}

func TestRandomJSON(t *testing.T) {
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"a"`, `"b\n"`, `"`, `\`, `1`, `-0.5e3`, `0`, `true`, `false`, `null`, ` `, "\n", `x`, `"\u00e9"`, "\xff", `"walks":`, `"a":1,`, `{"b":"x",`, `,"Wal`}
	rapid.Check(t, func(t *rapid.T) {
		compare(t, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 24).Draw(t, "pieces"), "")))
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b.c":"\u00e9"},null],"d":-1.5e3} [true]`))
	f.Fuzz(func(t *testing.T, text []byte) { compare(t, text) })
}
