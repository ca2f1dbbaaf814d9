// Fire says which of Prometheus' alert rules fire. Its argument is the file with the rules. On standard input it
// reads what /metrics answered during something, one time after the other, as JSON: {"a name": ["an answer", …]}. It
// prints for each name the rules that fire if that goes on for twenty minutes: {"a name": ["AlertworkerBlocked"]}.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"alertworker/tools/rules"
)

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "fire:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer, file string) error {
	all, err := rules.Read(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	var scraped map[string][]string
	if err := json.NewDecoder(in).Decode(&scraped); err != nil {
		return fmt.Errorf("read what was scraped: %w", err)
	}
	fired := map[string][]string{}
	for name, answers := range scraped {
		if fired[name], err = rules.Fire(ctx, all, answers); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return json.NewEncoder(out).Encode(fired)
}
