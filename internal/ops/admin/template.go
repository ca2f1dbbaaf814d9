package admin

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"text/template/parse"
)

// An htmlTemplate is what the status page needs of html/template: fields, functions, if,
// with and range. It renders what html/template would, which a test compares.
//
// html/template may call any method by its name, so the linker keeps every method of every type
// in the program: a sixth of the binary. This one calls only functions that it is given.
type htmlTemplate struct {
	tree  *parse.Tree
	funcs map[string]any
}

// A raw is HTML that is not escaped.
type raw string

// builtins are functions that mean what they do in html/template.
var builtins = map[string]any{
	"eq":  func(x, y any) bool { return x == y },
	"not": func(x any) bool { return !truth(reflect.ValueOf(x)) },
	"or": func(x, y any) any {
		if truth(reflect.ValueOf(x)) {
			return x
		}
		return y
	},
}

// mustParse parses text, which may call the builtins and funcs. Each function returns one value.
func mustParse(text string, funcs map[string]any) htmlTemplate {
	funcs = maps.Clone(funcs)
	maps.Copy(funcs, builtins)
	trees, err := parse.Parse("page", text, "{{", "}}", funcs)
	if err != nil {
		panic(err)
	}
	return htmlTemplate{trees["page"], funcs}
}

// execute renders the template for data, a struct. Values are escaped for text and for
// attributes in double quotes: they must not stand anywhere else.
func (t htmlTemplate) execute(b *bytes.Buffer, data any) (err error) {
	e := execution{b, t.funcs, reflect.ValueOf(data)}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r) // a field that does not exist, a function called wrongly
		}
	}()
	e.node(t.tree.Root, e.data)
	return nil
}

type execution struct {
	b     *bytes.Buffer
	funcs map[string]any
	data  reflect.Value // $
}

// node renders n for dot.
func (e execution) node(n parse.Node, dot reflect.Value) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil { // it is nil where there is no else
			for _, child := range n.Nodes {
				e.node(child, dot)
			}
		}
	case *parse.TextNode:
		e.b.Write(n.Text)
	case *parse.ActionNode:
		e.print(e.pipe(n.Pipe, dot))
	case *parse.IfNode:
		if truth(e.pipe(n.Pipe, dot)) {
			e.node(n.List, dot)
		} else {
			e.node(n.ElseList, dot)
		}
	case *parse.WithNode:
		if v := e.pipe(n.Pipe, dot); truth(v) {
			e.node(n.List, v)
		} else {
			e.node(n.ElseList, dot)
		}
	case *parse.RangeNode:
		list := e.pipe(n.Pipe, dot)
		for i := range list.Len() {
			e.node(n.List, list.Index(i))
		}
		if list.Len() == 0 {
			e.node(n.ElseList, dot)
		}
	default:
		panic(fmt.Sprintf("%s is not supported", n))
	}
}

func (e execution) print(v reflect.Value) {
	if html, ok := v.Interface().(raw); ok {
		e.b.WriteString(string(html))
		return
	}
	_, _ = escaper.WriteString(e.b, fmt.Sprint(v)) // a Buffer takes all
}

// escaper escapes what html/template escapes.
var escaper = strings.NewReplacer("\x00", "\uFFFD", `"`, "&#34;", "&", "&amp;", "'", "&#39;", "+", "&#43;", "<", "&lt;", ">", "&gt;")

// pipe evaluates a pipeline of one command: a value, or a function and its arguments.
func (e execution) pipe(p *parse.PipeNode, dot reflect.Value) reflect.Value {
	if len(p.Cmds) != 1 || len(p.Decl) > 0 {
		panic(fmt.Sprintf("%s is not supported", p))
	}
	words := p.Cmds[0].Args
	name, ok := words[0].(*parse.IdentifierNode)
	if !ok && len(words) == 1 {
		return e.value(words[0], dot)
	}
	if !ok {
		panic(fmt.Sprintf("%s is not a function", words[0]))
	}
	var args []reflect.Value
	for _, w := range words[1:] {
		args = append(args, e.value(w, dot))
	}
	result := reflect.ValueOf(e.funcs[name.Ident]).Call(args)[0]
	if result.Kind() == reflect.Interface {
		return result.Elem()
	}
	return result
}

func (e execution) value(n parse.Node, dot reflect.Value) reflect.Value {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return field(dot, n.Ident)
	case *parse.VariableNode: // only $ is declared
		return field(e.data, n.Ident[1:])
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	case *parse.PipeNode:
		return e.pipe(n, dot)
	}
	panic(fmt.Sprintf("%s is not supported", n))
}

func field(v reflect.Value, path []string) reflect.Value {
	for _, name := range path {
		if v = reflect.Indirect(v).FieldByName(name); !v.IsValid() {
			panic(fmt.Sprintf("there is no field %s", name))
		}
	}
	return v
}

// truth is false for what is empty.
func truth(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() > 0
	}
	return !v.IsZero()
}
