package admin

import (
	"bytes"
	"html/template"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The page is what html/template makes of it, whatever devices and replicas are called. So
// every value stands where escaping it as text is enough: elsewhere html/template does more.
func TestTemplateIsHTMLTemplate(t *testing.T) {
	funcs := maps.Clone(pageFuncs)
	funcs["css"] = func() template.CSS { return template.CSS(pageCSS) }
	funcs["js"] = func() template.JS { return template.JS(pageJS) }
	standard := template.Must(template.New("page").Funcs(funcs).Parse(pageHTML))
	rapid.Check(t, func(t *rapid.T) {
		var p page
		fill(t, reflect.ValueOf(&p).Elem())
		var got, want bytes.Buffer
		if err := standard.Execute(&want, p); err != nil {
			t.Fatal(err)
		}
		if err := pageTemplate.execute(&got, p); err != nil {
			t.Fatal(err)
		}
		if i := firstDifference(got.String(), want.String()); i >= 0 {
			t.Errorf("at byte %d got %.100q, want %.100q", i, got.String()[i:], want.String()[i:])
		}
	})
}

// firstDifference returns where two texts begin to differ; -1 if they do not.
func firstDifference(x, y string) int {
	if x == y {
		return -1
	}
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	return i
}

// fill gives v and all that it holds any values.
func fill(t *rapid.T, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "time"), 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{
			"", "ready", "not reading", "a+b", "\x00", `"><script>alert(1)</script>`, "' onload='x", "javascript:x", "&amp;", "{{.}}", "</title>", "ö…",
		}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-2, 1000).Draw(t, "number"))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 2).Draw(t, "length"), 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("a page holds a %s", v.Type())
	}
}

// What the template cannot do is an error, not a broken page.
func TestTemplateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Nothing}}":        "there is no field Nothing",
		"{{$x := .Up}}{{$x}}": "is not supported",
		"{{.Up | eq}}":        "is not supported",
		"{{.Up .Up}}":         "is not a function",
		`{{template "x"}}`:    "is not supported",
		"{{eq .Up}}":          "too few",
		"{{.Store.Over}}":     "reflect",
	} {
		var b bytes.Buffer
		err := mustParse(text, map[string]any{}).execute(&b, page{Up: "1 s"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v", text, b.String(), err)
		}
	}
}
