package config

import (
	"fmt"
	"strings"
)

// common are the variables that most deployments set.
var common = []string{
	"EVENTHUB_CONNECTION_STRING", "TEMPERATURE_THRESHOLD", "STORAGE_CONNECTION_STRING", "NOTIFY_URLS",
	"TEMPERATURE_FIELD", "THROTTLE_WINDOW", "THROTTLE_STORE", "HTTP_ADDR",
}

const (
	helpColumn = 31 // where descriptions begin
	helpWidth  = 110
)

// Help describes the variables, for `alertworker --help`.
func Help() string {
	all := Variables()
	var b strings.Builder
	b.WriteString("Common settings\n")
	for _, name := range common {
		v := all[position(name)]
		value := "no default"

		switch {
		case v.Required:
			value = "required"
		case v.Default != "":
			value = "default " + v.Default
		}

		fmt.Fprintf(&b, "  %-*s%s\n", helpColumn-2, v.Name, value)
	}

	b.WriteString("\nAll settings. A secret (*) can also be read from a file: set VARIABLE_FILE to its path.\n")
	group := ""
	for _, v := range all {
		if v.Group != group {
			group = v.Group
			fmt.Fprintf(&b, "\n%s\n", group)
		}

		name, text := v.Name, v.Description
		if v.Secret {
			name += "*"
		}

		switch {
		case v.Required:
			text += " [required]"
		case v.Default != "":
			text += " [" + v.Default + "]"
		}

		writeWrapped(&b, name, text)
	}

	return b.String()
}

// writeWrapped writes text in the column beside name, in lines of helpWidth.
func writeWrapped(b *strings.Builder, name, text string) {
	line := fmt.Sprintf("  %-*s", helpColumn-3, name)
	if len(line) >= helpColumn {
		b.WriteString(line + "\n")
		line = strings.Repeat(" ", helpColumn-1)
	}

	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", helpColumn-1)
		}
		line += " " + word
	}

	b.WriteString(line + "\n")
}
