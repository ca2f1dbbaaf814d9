package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each step of the way of one reading names a function that exists.
func TestWayOfAReading(t *testing.T) {
	text, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, _ := strings.Cut(string(text), "**The way of one reading**\n")
	way, _, _ = strings.Cut(way, "\n\n")
	if steps := strings.Count(way, "\n") + 1; steps != 10 {
		t.Errorf("the way has %d steps, want 10", steps)
	}

	names := regexp.MustCompile("`(\\w+\\.\\w+)`").FindAllStringSubmatch(way, -1)
	if len(names) < 10 {
		t.Errorf("the way names %d functions, want one for each step", len(names))
	}
	there := methods(t)
	for _, name := range names {
		if !there[name[1]] {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", name[1])
		}
	}
}

// methods returns the methods of the product, each as type.method.
func methods(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "lab" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				found[receiver(f)+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// receiver returns the name of f's receiver's type.
func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
