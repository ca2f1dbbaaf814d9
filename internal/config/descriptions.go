package config

import "alertworker/internal/notify/receivers"

// descriptions say what each variable of [Config] is for, in help.
var descriptions = map[string]string{
	"EVENTHUB_CONNECTION_STRING": "the hub's Event Hub-compatible endpoint, Endpoint=sb://...;EntityPath=...; " +
		"UseDevelopmentEmulator=true is supported",
	"EVENTHUB_NAME": "name of the event hub, if there is no connection string, or one without EntityPath",
	"EVENTHUB_NAMESPACE": "instead of a connection string, without a key: host name of the namespace, " +
		"NAME.servicebus.windows.net",
	"IOTHUB_CONNECTION_STRING": "instead of both: the IoT Hub's own service connection string, HostName=...; keeps " +
		"working when the hub fails over",
	"EVENTHUB_CONSUMER_GROUP": "consumer group to read from; no other program should use it",
	"EVENTHUB_START":          "where to start without a checkpoint: earliest, latest or an RFC 3339 time",
	"EVENTHUB_PREFETCH":       "events requested per partition, 1 to 5000; at most 256 MiB in total",
	"EVENTHUB_TRANSPORT": "amqp (port 5671), or websocket: AMQP over WebSockets (port 443), through the proxy of " +
		"HTTPS_PROXY if that is set",

	"TEMPERATURE_THRESHOLD": "alert at or above this temperature, in the unit that the devices send",
	"TEMPERATURE_FIELD": "where the temperature is in a message: dotted paths; the first that holds a number is " +
		"used",
	"TIME_PROPERTY": "where a message carries the time of its reading, for devices that are sometimes offline: " +
		"iothub-creation-time-utc, another name in a message, or body: and a field, such as body:timestamp; " +
		"empty: the hub's time",
	"RULES":      "the text of a file of rules, in YAML, instead of TEMPERATURE_...: several limits, levels or fields",
	"RULES_FILE": "the same, but in this file, which is read at start",

	"THROTTLE_WINDOW": "minimum time between two alerts for a device, 1s to 24h",
	"THROTTLE_STORE":  "where windows are stored: " + storesHelp(),
	"THROTTLE_SCOPE": "replicas with the same scope share windows; set it only to share or separate them " +
		"deliberately",

	"STORAGE_CONNECTION_STRING": "Azure Storage, with a key: checkpoints, ownership, dead letters and the blob " +
		"stores",
	"STORAGE_ACCOUNT_URL":   "the same, without a key: https://ACCOUNT.blob.core.windows.net",
	"CHECKPOINT_STORE":      "blob, or memory (single replica only, which starts over after a restart)",
	"CHECKPOINT_CONTAINER":  "checkpoints and ownership; created if missing",
	"THROTTLE_CONTAINER":    "windows of the blob stores; created if missing",
	"DEAD_LETTER_CONTAINER": "alerts that could not be delivered; created if missing",
	"CHECKPOINT_INTERVAL":   "maximum delay between progress and its checkpoint",

	"COSMOS_CONNECTION_STRING": "Cosmos DB, with a key: AccountEndpoint=...;AccountKey=...",
	"COSMOS_ENDPOINT":          "the same, without a key: https://ACCOUNT.documents.azure.com:443/",
	"COSMOS_DATABASE":          "created if missing and permitted",
	"COSMOS_CONTAINER":         "created if missing and permitted",

	"NOTIFY_URLS": "where to send alerts, separated by commas or line breaks: " + receivers.Help() +
		"; each may have options before it, followed by a space: id=, name=, level=, rule=, where=, " +
		"batch=, secret=, header=; see docs/receivers.md",
	"NOTIFY_WEBHOOK_SECRET": "key for signing webhooks as in Standard Webhooks: whsec_ followed by 24 to 64 bytes " +
		"in base64; two, separated by a space, while one replaces the other",
	"PUBLIC_URL":         "where people reach the status page; messages link to it",
	"TIME_ZONE":          "time zone of times in messages, on the page, in the log, in what commands print, and of mute in RULES, for example Europe/Berlin",
	"NOTIFY_RESOLVED":    "also send a recovery when a device is normal again; the default for resolved in RULES",
	"NOTIFY_TIMEOUT":     "time limit of a delivery attempt, 1s to 5m",
	"NOTIFY_CONCURRENCY": "concurrent deliveries per receiver and replica, 1 to 4096",
	"NOTIFY_GIVE_UP":     "age at which an undelivered alert becomes a dead letter; keep it below the hub's retention",

	"OWNERSHIP_EXPIRY": "how long a replica without a heartbeat keeps its partitions",
	"BALANCE_INTERVAL": "how often a replica sends a heartbeat and looks for partitions to take over",
	"DRAIN_TIMEOUT":    "time to finish deliveries in flight on SIGTERM",
	"REPLICA_NAME":     "name of this replica in logs, alerts and the status page",

	"LEASE_RETENTION": "records of devices with no alert for this long are removed, 24h to 87600h; must exceed how " +
		"late an event can arrive",
	"HEARTBEAT_URL": "monitoring service to call every minute while an alert would go out, and with /fail while it " +
		"would not: https://hc-ping.com/..., Better Stack, Cronitor or Uptime Kuma; prefix with 'interval=5m ' or " +
		"'fail=off ' to change that",

	"HTTP_ADDR": "address of health checks, metrics and status page; empty turns HTTP off",
	"HTTP_HOSTS": "host names by which people reach the status page, separated by commas, besides localhost, addresses, " +
		"and the names in PUBLIC_URL and REPLICA_NAME; requests for others are refused",
	"HTTP_INGEST_TOKEN": "bearer token that enables the HTTP trigger, POST /devices/{id}/telemetry; 16 to 1024 " +
		"characters",
	"HTTP_ADMIN_TOKEN": "bearer token that enables /devices/{id}, to look up a device and to remove it; must " +
		"differ from HTTP_INGEST_TOKEN",
	"LOG_LEVEL":  "debug, info, warn or error",
	"LOG_FORMAT": "json, or console for reading in a terminal",
}

// hints say what to set a variable to that is required.
var hints = map[string]string{
	"TEMPERATURE_THRESHOLD": "set the temperature to alert at, in the unit that the devices send, for example 80",
	"NOTIFY_URLS": "set where to send alerts, for example https://example.com/hook, or log: to only write them to " +
		"the log",
}
