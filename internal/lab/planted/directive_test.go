package planted_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// A directive is a comment above a line of the worker, which makes a bug of it: see docs/dev/planted.md.
type directive struct {
	bug  string
	text string    // Go, and skip
	at   token.Pos // its end
}

var directiveLine = regexp.MustCompile(`^//planted:([a-z0-9-]+) (.+)$`)

// A source is a file with bugs.
type source struct {
	name string // as the compiler finds it
	text string
	*ast.File
	set        *token.FileSet
	directives []directive
}

// sources returns the files of the worker that have directives.
func sources(t *testing.T) (all []*source) {
	t.Helper()
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil || !strings.Contains(string(text), "//planted:") {
				return err
			}
			s, err := parse(name, string(text))
			if err == nil {
				all = append(all, s)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func parse(name, text string) (*source, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, text: text, set: token.NewFileSet()}
	s.File, err = parser.ParseFile(s.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	for _, group := range s.Comments {
		var last *directive // what two lines say of one bug is one text
		for _, c := range group.List {
			m := directiveLine.FindStringSubmatch(c.Text)
			switch {
			case m == nil && strings.HasPrefix(c.Text, "//planted"):
				return nil, fmt.Errorf("%v: %s is no directive", s.set.Position(c.Pos()), c.Text)
			case m == nil:
			case last != nil && last.bug == m[1]:
				last.text += "\n" + m[2]
			default:
				s.directives = append(s.directives, directive{bug: m[1], text: m[2], at: group.End()})
				last = &s.directives[len(s.directives)-1]
			}
		}
	}
	return s, nil
}

// plant returns the text of s with bugs in it, which planted(i) turns on.
func (s *source) plant(number func(bug string) (i int, ok bool)) (string, error) {
	before, after := map[int]string{}, map[int]string{} // by offset
	for _, d := range s.directives {
		i, ok := number(d.bug)
		if !ok {
			continue
		}
		at := s.set.Position(d.at)
		stmt := s.statementBelow(at.Line)
		if stmt == nil {
			return "", fmt.Errorf("%v: no statement is below %q", at, d.bug)
		}
		e, err := d.edit(stmt, i)
		if err != nil {
			return "", fmt.Errorf("%v: %s: %w", at, d.bug, err)
		}
		from, to := s.set.Position(e.from).Offset, s.set.Position(e.to).Offset
		before[from] = e.before + before[from]
		after[to] += e.after
	}

	var b strings.Builder
	written := 0
	offsets := map[int]bool{}
	for at := range before {
		offsets[at] = true
	}
	for at := range after {
		offsets[at] = true
	}
	var order []int
	for at := range offsets {
		order = append(order, at)
	}
	slices.Sort(order)
	for _, at := range order {
		b.WriteString(s.text[written:at] + after[at] + before[at])
		written = at
	}
	return b.String() + s.text[written:], nil
}

// statementBelow returns the outermost statement that begins in the line below one, without blocks.
func (s *source) statementBelow(line int) (first ast.Stmt) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		stmt, ok := n.(ast.Stmt)
		_, block := n.(*ast.BlockStmt)
		if ok && !block && first == nil && s.set.Position(stmt.Pos()).Line == line+1 {
			first = stmt
		}
		return first == nil
	})
	return first
}

// An edit surrounds a piece of source.
type edit struct {
	from, to      token.Pos
	before, after string
}

var header = regexp.MustCompile(`(?s)^(if|for|case) (.*)$`)

// edit makes bug i of a statement.
func (d directive) edit(stmt ast.Stmt, i int) (edit, error) {
	if r, ok := stmt.(*ast.ReturnStmt); ok && len(r.Results) == 1 && (d.text == "return true" || d.text == "return false") {
		is := r.Results[0]
		return choice("return ", "", is.Pos(), is.End(), strings.TrimPrefix(d.text, "return "), i), nil
	}

	const head, tail = "package p\nfunc _() {", "\n}"
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", head+d.text+tail, parser.SkipObjectResolution)
	if m := header.FindStringSubmatch(d.text); err != nil && m != nil {
		return condition(m[1], m[2], stmt, i)
	}
	if err != nil {
		return edit{}, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset - len(head) }

	list := file.Decls[0].(*ast.FuncDecl).Body.List
	begin := fmt.Sprintf("if planted(%d) {", i)
	text := d.text
	if only, ok := list[0].(*ast.IfStmt); ok && len(list) == 1 && only.Else == nil {
		begin = fmt.Sprintf("%s(%s) && planted(%d) {", text[:offset(only.Cond.Pos())],
			text[offset(only.Cond.Pos()):offset(only.Cond.End())], i)
		text = text[offset(only.Body.Lbrace)+1 : offset(only.Body.Rbrace)]
		list = only.Body.List
	}
	e := edit{from: stmt.Pos(), to: stmt.Pos(), before: begin + text + " }; "}
	if len(list) > 0 && isSkip(list[len(list)-1]) {
		e.to = stmt.End()
		e.before = begin + strings.TrimSuffix(strings.TrimSpace(text), "skip") + " } else { "
		e.after = " }"
	}
	return e, nil
}

func isSkip(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	name, ok := e.X.(*ast.Ident)
	return ok && name.Name == "skip"
}

// condition makes a bug of the condition of a statement.
func condition(keyword, text string, stmt ast.Stmt, i int) (edit, error) {
	var cond ast.Expr
	switch stmt := stmt.(type) {
	case *ast.IfStmt:
		cond = stmt.Cond
	case *ast.ForStmt:
		cond = stmt.Cond
	case *ast.CaseClause:
		if n := len(stmt.List); keyword == "case" && n > 0 {
			return choice("switch { case ", ": return true }; return false", stmt.List[0].Pos(), stmt.List[n-1].End(), text, i), nil
		}
	}
	if cond == nil || keyword == "case" {
		return edit{}, fmt.Errorf("there is no %s below it", keyword)
	}
	return choice("return ", "", cond.Pos(), cond.End(), text, i), nil
}

// choice has other in place of an expression. Whether the bug is there is asked only where that makes a difference.
func choice(begin, end string, from, to token.Pos, other string, i int) edit {
	return edit{
		from: from, to: to,
		before: fmt.Sprintf("plantedInstead(%d, func() bool { %s", i, begin),
		after:  fmt.Sprintf("%s }, func() bool { %s%s%s })", end, begin, other, end),
	}
}

// planting is what a package with bugs has besides. It tells which of them a run comes to.
const planting = `import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	plantedBug, _  = strconv.Atoi(os.Getenv("PLANTED_BUG"))
	plantedReached [512]atomic.Bool
)

func planted(bug int) bool {
	if !plantedReached[bug].Load() && !plantedReached[bug].Swap(true) {
		_, _ = os.Stderr.WriteString("REACHED " + strconv.Itoa(bug) + "\n")
	}
	return plantedBug == bug+1
}

func plantedInstead(bug int, is, other func() bool) bool {
	was := is()
	return was != (other() != was && planted(bug))
}
`

// build runs go with args and an overlay that has bugs in it.
func build(t *testing.T, number func(bug string) (i int, ok bool), args ...string) {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, s := range sources(t) {
		text, err := s.plant(number)
		if err != nil {
			t.Fatal(err)
		}
		if text != s.text {
			texts[s.name] = "//line " + s.name + ":1\n" + text
			texts[filepath.Join(filepath.Dir(s.name), "planted_bugs.go")] = "package " + s.Name.Name + "\n\n" + planting
		}
	}
	replaced := map[string]string{}
	for file, text := range texts {
		replaced[file] = filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		if err := os.WriteFile(replaced[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Insert(args, 1, "-overlay", list)...)
	cmd.Dir = root
	var wrong strings.Builder
	cmd.Stderr = &wrong
	if err := cmd.Run(); err != nil {
		t.Fatalf("bugs do not compile: %v\n%s", err, &wrong)
	}
}

// What a directive can say.
func TestDirectives(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"statements", "//planted:a x = 1; y = 2\nf()", "if planted(0) {x = 1; y = 2 }; f()"},
		{"on a condition", "//planted:a if x > 1 { x = 1 }\nf()", "if (x > 1) && planted(0) { x = 1  }; f()"},
		{"in two lines", "//planted:a x = 1\n//planted:a y = 2\nf()", "if planted(0) {x = 1\ny = 2 }; f()"},
		{"left out", "//planted:a skip\nf() // why", "if planted(0) { } else { f() } // why"},
		{"replaced", "//planted:a g(); skip\nf()", "if planted(0) {g();  } else { f() }"},
		{"left out on a condition", "//planted:a if y { skip }\nf()", "if (y) && planted(0) { } else { f() }"},
		{
			"a condition", "//planted:a if x\nif x &&\n\ty {\n}",
			"if plantedInstead(0, func() bool { return x &&\n\ty }, func() bool { return x }) {\n}",
		},
		{
			"a case", "switch {\n// why\n//planted:a case x\ncase x, y:\n}",
			"case plantedInstead(0, func() bool { switch { case x, y: return true }; return false }, " +
				"func() bool { switch { case x: return true }; return false }):\n}",
		},
		{
			"a result", "//planted:a return false\nreturn x || y",
			"return plantedInstead(0, func() bool { return x || y }, func() bool { return false })",
		},
		{
			"two bugs of a condition", "//planted:a if y\n//planted:b if x\nif x || y {\n}",
			"if plantedInstead(1, func() bool { return plantedInstead(0, func() bool { return x || y }, " +
				"func() bool { return y }) }, func() bool { return x }) {\n}",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse("a.go", "package p\n\nfunc _() bool {\n"+test.source+"\n}\n")
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.plant(func(bug string) (int, bool) { return int(bug[0] - 'a'), true })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parse("b.go", got); err != nil {
				t.Errorf("what is planted is no Go: %v", err)
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got\n%s\nnot\n%s", got, test.want)
			}
		})
	}
}

func TestWrongDirectives(t *testing.T) {
	for name, text := range map[string]string{
		"without a bug":            "//planted\nf()",
		"without a statement":      "f()\n//planted:a skip",
		"not right above":          "//planted:a skip\n\nf()",
		"no condition is below it": "//planted:a if x\nf()",
		"no case is below it":      "//planted:a case x\nif x {\n}",
		"no Go":                    "//planted:a x x\nf()",
	} {
		s, err := parse("a.go", "package p\n\nfunc _() {\n"+text+"\n}\n")
		if err == nil {
			_, err = s.plant(func(string) (int, bool) { return 0, true })
		}
		if err == nil {
			t.Errorf("%s: it is planted", name)
		}
	}
}
