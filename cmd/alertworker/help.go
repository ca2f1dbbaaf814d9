package main

import (
	"fmt"
	"strings"
)

const helpHead = `alertworker reads the telemetry of an Azure IoT Hub and tells people when a device reports a temperature at
or above a limit: never twice within the window for one device, never zero times, however many replicas run.

Usage: alertworker [command] [flags]

Commands
  (none)    run the worker, configured by the environment alone
  local     see it work on this machine, without Azure: simulated devices, alerts on the console
  check     connect to all that the environment names, read a few events; --notify also sends a test alert
  deadletters list | replay
            the alerts that a receiver did not take: what they are, and send them again
  devhub    an Event Hubs namespace in memory, for development; prints its connection string
  version   version, commit, Go version
  The flags of a command: alertworker COMMAND --help

Example
  # portal: IoT Hub > Built-in endpoints
  export EVENTHUB_CONNECTION_STRING='Endpoint=sb://...;EntityPath=...'
  # portal: storage account > Access keys
  export STORAGE_CONNECTION_STRING='DefaultEndpointsProtocol=https;AccountName=...'
  export TEMPERATURE_THRESHOLD=80
  export NOTIFY_URLS=https://example.com/hook
  alertworker check && alertworker

`

const helpExitCodes = `
Exit codes
  0  stopped as asked
  1  failed while running
  2  wrong configuration
`

// needed are the variables that most deployments set or look at first.
var needed = []string{
	"EVENTHUB_CONNECTION_STRING", "TEMPERATURE_THRESHOLD", "STORAGE_CONNECTION_STRING", "NOTIFY_URLS",
	"TEMPERATURE_FIELD", "THROTTLE_WINDOW", "THROTTLE_STORE", "HTTP_ADDR",
}

const (
	helpColumn = 31 // where descriptions begin
	helpWidth  = 110
)

// helpText returns what `alertworker --help` prints.
func helpText() string {
	all := variables()
	var b strings.Builder
	b.WriteString(helpHead)

	b.WriteString("Most needed\n")
	for _, name := range needed {
		v := all[position(name)]
		value := "no default"
		if v.Default != "" {
			value = "default " + v.Default
		}
		fmt.Fprintf(&b, "  %-*s%s\n", helpColumn-2, v.Name, value)
	}

	b.WriteString("\nAll variables. Secrets (*) can also come from a file that VARIABLE_FILE names.\n")
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
	b.WriteString(helpExitCodes)
	return b.String()
}

// writeWrapped writes text in the column beside name, in lines of helpWidth.
func writeWrapped(b *strings.Builder, name, text string) {
	line := fmt.Sprintf("  %-*s", helpColumn-3, name)
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", helpColumn-1)
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
