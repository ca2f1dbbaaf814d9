package config

import (
	"cmp"
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
		unset := cmp.Or(v.whenUnset(), "no default")
		if v.Default != "" {
			unset = "default " + v.Default
		}
		fmt.Fprintf(&b, "  %-*s%s\n", helpColumn-2, v.Name, unset)
	}

	b.WriteString("\nAll settings. A secret (*) can also be read from a file: set VARIABLE_FILE to its path.\n")
	group := ""
	for _, v := range all {
		if v.Group != group {
			group = v.Group
			fmt.Fprintf(&b, "\n%s\n", group)
		}

		name := v.Name
		if v.Secret {
			name += "*"
		}

		text := v.Description
		if unset := v.whenUnset(); unset != "" {
			text += " [" + unset + "]"
		}
		writeWrapped(&b, name, text)
	}

	return b.String()
}

// whenUnset says what it is when nobody sets it; "" if it is nothing.
func (v Variable) whenUnset() string {
	if v.Required {
		return "required"
	}
	return v.Default
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
