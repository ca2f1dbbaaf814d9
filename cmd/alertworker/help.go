package main

import "alertworker/internal/config"

const helpHead = `alertworker reads the telemetry of an Azure IoT Hub and tells people when a device reports a temperature at
or above a limit: never twice within the window for one device, never zero times, however many replicas run.

Usage: alertworker [command] [flags]

Commands
  (none)    run the worker, configured by the environment alone
  local     see it work on this machine, without Azure: simulated devices, alerts on the console
  check     connect to everything that the environment names, read a few events; --notify also sends a test alert
  deadletters list | replay
            alerts that a receiver did not take: list them, or send them again
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

// helpText returns what `alertworker --help` prints.
func helpText() string { return helpHead + config.Help() + helpExitCodes }
