package main

import (
	"context"
	"io"

	"alertworker/internal/config"
)

const helpHead = `alertworker reads telemetry from an Azure IoT Hub and sends an alert when a device reports a temperature
at or above a threshold: at most one per device within the window, and none is ever lost, however many replicas run.

Usage: alertworker [command] [flags]

Commands
  (none)    run the worker, configured by environment variables only
  local     try it on this machine, without Azure: simulated devices, alerts in the terminal
  check     connect to everything that is configured and read a few events; --notify also sends a test alert
  backtest  show what these or other rules would have done with recorded readings; nothing is sent
  audit     compare what should have been sent, by the readings in the hub, with what the stores say was sent
  test      send a reading through a running worker to the receivers, and report how long each step took
  why DEVICE
            explain why a device did or did not cause an alert, and what to do; --last 2h also shows its latest readings
  deadletters list | replay | discard
            list alerts that could not be delivered, send them again, or delete them
  silence   mute the alerts of some devices, or of a rule, for a time; silences list | end
  devhub    run an in-memory Event Hubs namespace for development; prints its connection string
  version   print the version, commit and Go version
  For the flags of a command: alertworker COMMAND --help

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
  0   stopped on request
  1   failed
  2   crashed: the log ends with the stack
  78  invalid configuration or command line
`

// printHelp is `alertworker --help`.
func printHelp(_ context.Context, out io.Writer, _ []string) error {
	_, err := io.WriteString(out, helpHead+config.Help()+helpExitCodes)
	return err
}
