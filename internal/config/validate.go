package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/humanize"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/notify/heartbeat"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
	"alertworker/internal/throttle"
)

// validate adds all errors in c to e, those of a single variable before those of
// several together.
func (c *Config) validate(e *configError) {
	c.validateHub(e)
	c.validateReadings(e)
	c.validateStorage(e)
	c.validateCosmos(e)
	c.validateNotify(e)
	c.validateReplicas(e)
	c.validateDuties(e)
	c.validateHTTPAndLog(e)
	c.validateThrottle(e)
	c.validateRules(e)
}

const missingHub = "is missing: set it to the hub's Event Hub-compatible endpoint, Endpoint=sb://...;EntityPath=... " +
	"(portal: IoT Hub > Built-in endpoints); " +
	"or set EVENTHUB_NAMESPACE and EVENTHUB_NAME to read without a key; or IOTHUB_CONNECTION_STRING, the hub's own " +
	"service connection string"

func (c *Config) validateHub(e *configError) {
	if at := c.EventHubStart.Time; at.After(time.Now().Add(time.Minute)) {
		e.add(
			"EVENTHUB_START",
			"is %s, in the future: nothing that devices send until then would be read",
			at.Format(time.RFC3339),
		)
	}

	c.validateOneHub(e)
	c.validateEventHub(e)
	if c.IoTHubConnectionString.IsSet() {
		if _, err := parseIoTHub(c.IoTHubConnectionString.Reveal()); err != nil {
			e.add("IOTHUB_CONNECTION_STRING", "%v", err)
		}
	}

	if c.EventHubName != "" && !entityName.MatchString(c.EventHubName) {
		e.add("EVENTHUB_NAME", "is %s; must be only the event hub's name: letters, digits, '.', '-' and '_'",
			show(c.EventHubName))
	}

	if group := c.EventHubConsumerGroup; !strings.EqualFold(group, "$default") &&
		(len(group) > 50 || !entityName.MatchString(group)) {
		e.add("EVENTHUB_CONSUMER_GROUP", "is %s; must be $Default or a consumer group's name: up to 50 letters, "+
			"digits, '.', '-' and '_'", show(group))
	}

	between(e, "EVENTHUB_PREFETCH", c.EventHubPrefetch, 1, eventhubs.MaxPrefetch)
	oneOf(e, "EVENTHUB_TRANSPORT", c.EventHubTransport, TransportAMQP, TransportWebSocket)
}

// validateOneHub checks that the settings name one hub, and one only.
func (c *Config) validateOneHub(e *configError) {
	var given []string
	if c.EventHubConnectionString.IsSet() || e.has("EVENTHUB_CONNECTION_STRING") {
		given = append(given, "EVENTHUB_CONNECTION_STRING")
	}

	if c.EventHubNamespace != "" || e.has("EVENTHUB_NAMESPACE") {
		given = append(given, "EVENTHUB_NAMESPACE")
	}

	if c.IoTHubConnectionString.IsSet() || e.has("IOTHUB_CONNECTION_STRING") {
		given = append(given, "IOTHUB_CONNECTION_STRING")
	}

	switch len(given) {
	case 0:
		e.add("EVENTHUB_CONNECTION_STRING", missingHub)

	case 1:

	default:
		e.add(
			given[0],
			"and %s are set, but there is only one hub to read from: remove all but one",
			strings.Join(given[1:], " and "),
		)
	}
}

// validateEventHub checks the settings of an Event Hubs namespace.
func (c *Config) validateEventHub(e *configError) {
	if c.EventHubConnectionString.IsSet() {
		address, err := parseEventHub(c.EventHubConnectionString.Reveal())
		switch {
		case err != nil:
			e.add("EVENTHUB_CONNECTION_STRING", "%v", err)

		case address.Name == "" && c.EventHubName == "":
			e.add(
				"EVENTHUB_NAME",
				"is missing: EVENTHUB_CONNECTION_STRING has no EntityPath, so set the name of the event hub here (or use the "+
					"hub's own connection string, portal: IoT Hub > Built-in endpoints)",
			)

		case address.Name != "" && c.EventHubName != "" && address.Name != c.EventHubName:
			e.add(
				"EVENTHUB_NAME",
				"is %s, but the EntityPath of EVENTHUB_CONNECTION_STRING is a different hub: remove one of them",
				show(c.EventHubName),
			)
		}
	}

	if c.EventHubNamespace != "" {
		if len(c.EventHubNamespace) > 253 || !hostName.MatchString(c.EventHubNamespace) {
			e.add(
				"EVENTHUB_NAMESPACE",
				"is %s; must be only the full host name, such as NAME.servicebus.windows.net (portal: Event Hubs namespace > "+
					"Overview)",
				show(c.EventHubNamespace),
			)
		}

		if c.EventHubName == "" {
			e.add("EVENTHUB_NAME", "is missing: EVENTHUB_NAMESPACE requires the name of the event hub")
		}
	}
}

// entityName is a name in an Event Hubs namespace.
var entityName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?$`)

func (c *Config) validateReadings(e *configError) {
	if !finite(c.TemperatureThreshold) {
		e.add("TEMPERATURE_THRESHOLD", "must be a finite number, for example 80")
	}

	if clear := c.TemperatureClear; clear != nil {
		switch {
		case !finite(*clear):
			e.add("TEMPERATURE_CLEAR", "must be a finite number, for example 75")

		case !e.has("TEMPERATURE_THRESHOLD") && !c.HasRulesFile() && *clear > c.TemperatureThreshold:
			e.add(
				"TEMPERATURE_CLEAR",
				"is %v; must be at most TEMPERATURE_THRESHOLD (%v), or alarms would clear while still active",
				*clear,
				c.TemperatureThreshold,
			)
		}
	}

	between(e, "TEMPERATURE_FOR", c.TemperatureFor, 0, rules.MaxFor)
	property := func(variable, name string) {
		if err := checkProperty(name); name != "" && err != nil {
			e.add(variable, "%v", err)
		}
	}
	property("TEMPERATURE_THRESHOLD_PROPERTY", c.TemperatureThresholdProperty)
	property("QUIET_PROPERTY", c.QuietProperty)
	if _, err := rules.NewClock(c.TimeProperty); err != nil {
		e.add("TIME_PROPERTY", "%v", err)
	} else if !strings.HasPrefix(c.TimeProperty, "body:") {
		property("TIME_PROPERTY", c.TimeProperty)
	}

	if err := checkField(c.TemperatureField); err != nil {
		e.add("TEMPERATURE_FIELD", "%v", err)
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func (c *Config) validateStorage(e *configError) {
	oneOf(e, "CHECKPOINT_STORE", c.CheckpointStore, StoreBlob, StoreMemory)
	if c.StorageConnectionString.IsSet() {
		if c.StorageAccountURL != "" {
			e.add(
				"STORAGE_CONNECTION_STRING",
				"and STORAGE_ACCOUNT_URL are both set: remove one of them (the URL is for access without a key)",
			)
		}

		if err := checkStorage(c.StorageConnectionString.Reveal()); err != nil {
			e.add("STORAGE_CONNECTION_STRING", "%v", err)
		}
	}

	if c.StorageAccountURL != "" {
		if err := azure.CheckEndpoint(c.StorageAccountURL, "https://ACCOUNT.blob.core.windows.net"); err != nil {
			e.add("STORAGE_ACCOUNT_URL", "is %s; %v", show(c.StorageAccountURL), err)
		}

		for _, other := range []string{".dfs.", ".queue.", ".table.", ".file."} {
			if strings.Contains(c.StorageAccountURL, other) {
				e.add(
					"STORAGE_ACCOUNT_URL",
					"is the account's %s service; must be its blob service: https://ACCOUNT.blob.core.windows.net",
					strings.Trim(other, "."),
				)
			}
		}
	}

	if uses := c.storageUses(); uses != "" && !c.HasStorage() {
		e.add(
			"STORAGE_CONNECTION_STRING",
			"is missing: required by %s (portal: storage account > Access keys); or set STORAGE_ACCOUNT_URL for access "+
				"without a key",
			uses,
		)
	}

	containers := []struct{ variable, name string }{
		{"CHECKPOINT_CONTAINER", c.CheckpointContainer},
		{"THROTTLE_CONTAINER", c.ThrottleContainer},
		{"DEAD_LETTER_CONTAINER", c.DeadLetterContainer},
	}
	for i, container := range containers {
		if len(container.name) < 3 || len(container.name) > 63 || !containerName.MatchString(container.name) {
			e.add(
				container.variable,
				"is %s; must be 3 to 63 lower-case letters, digits and single hyphens between them",
				show(container.name),
			)
		}

		for _, earlier := range containers[:i] {
			if container.name == earlier.name {
				e.add(
					container.variable,
					"is %s, the same as %s: each needs a container of its own",
					show(container.name),
					earlier.variable,
				)
			}
		}
	}

	between(e, "CHECKPOINT_INTERVAL", c.CheckpointInterval, 100*time.Millisecond, 10*time.Minute)
}

// containerName is Azure's rule except for the length.
var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)

// storageUses lists the settings that require Azure Storage; empty if none does.
func (c *Config) storageUses() string {
	var uses []string
	if c.CheckpointStore == StoreBlob {
		uses = append(uses, "CHECKPOINT_STORE=blob")
	}

	if c.ThrottleStore == StoreBlob || c.ThrottleStore == StoreBlobLease {
		uses = append(uses, "THROTTLE_STORE="+string(c.ThrottleStore))
	}

	return strings.Join(uses, " and ")
}

func (c *Config) validateCosmos(e *configError) {
	if c.CosmosConnectionString.IsSet() {
		if c.CosmosEndpoint != "" {
			e.add(
				"COSMOS_CONNECTION_STRING",
				"and COSMOS_ENDPOINT are both set: remove one of them (the endpoint is for access without a key)",
			)
		}

		if err := checkCosmos(c.CosmosConnectionString.Reveal()); err != nil {
			e.add("COSMOS_CONNECTION_STRING", "%v", err)
		}
	}

	if c.CosmosEndpoint != "" {
		if _, err := cosmoslease.WithCredential(c.CosmosEndpoint, nil); err != nil {
			e.add("COSMOS_ENDPOINT", "is %s; %v", show(c.CosmosEndpoint), err)
		}
	}

	if c.ThrottleStore == StoreCosmos && !c.CosmosConnectionString.IsSet() && c.CosmosEndpoint == "" {
		e.add(
			"COSMOS_CONNECTION_STRING",
			"is missing: required by THROTTLE_STORE=cosmos (portal: Cosmos DB account > Keys); or set COSMOS_ENDPOINT for "+
				"access without a key",
		)
	}

	cosmosName(e, "COSMOS_DATABASE", c.CosmosDatabase)
	cosmosName(e, "COSMOS_CONTAINER", c.CosmosContainer)
}

func cosmosName(e *configError, variable, name string) {
	if len(name) > 255 || strings.ContainsAny(name, `/\?#`) || strings.TrimSpace(name) != name || !utf8.ValidString(name) {
		e.add(variable, `is %s; must be at most 255 bytes, without / \ ? # and without spaces at either end`, show(name))
	}
}

func (c *Config) validateNotify(e *configError) {
	if _, err := webhook.ParseSecrets(c.NotifyWebhookSecret.Reveal()); err != nil {
		e.add("NOTIFY_WEBHOOK_SECRET", "%v", err)
	}

	if _, err := receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{Log: zap.NewNop()}); err != nil {
		e.add("NOTIFY_URLS", "%v", err)
	}

	if c.PublicURL != "" {
		if err := checkPage(c.PublicURL); err != nil {
			e.add("PUBLIC_URL", "is %s; %v", show(c.PublicURL), err)
		}
	}

	if _, err := time.LoadLocation(c.TimeZone); err != nil || c.TimeZone == "Local" {
		e.add("TIME_ZONE", "is %s; must be UTC or the name of a time zone, such as Europe/Berlin", show(c.TimeZone))
	}

	between(e, "NOTIFY_TIMEOUT", c.NotifyTimeout, time.Second, 5*time.Minute)
	between(e, "NOTIFY_CONCURRENCY", c.NotifyConcurrency, 1, 4096)
	between(e, "NOTIFY_GIVE_UP", c.NotifyGiveUp, time.Second, longestRetention)
	if least := 2 * throttle.ClaimTTL(c.NotifyTimeout); !e.has("NOTIFY_TIMEOUT") && !e.has("NOTIFY_GIVE_UP") &&
		c.NotifyGiveUp < least {
		e.add(
			"NOTIFY_GIVE_UP",
			"is %s; must be at least %s, the time of two attempts with NOTIFY_TIMEOUT=%s, or a slow receiver makes every "+
				"alert a dead letter",
			Plain(c.NotifyGiveUp),
			Plain(least),
			Plain(c.NotifyTimeout),
		)
	}
}

// maxRetention is the longest that anything is kept.
const maxRetention = 87600 * time.Hour

// longestRetention is the longest that any tier of Event Hubs keeps events.
const longestRetention = 90 * 24 * time.Hour

func (c *Config) validateReplicas(e *configError) {
	between(e, "OWNERSHIP_EXPIRY", c.OwnershipExpiry, 2*time.Second, 10*time.Minute)
	between(e, "BALANCE_INTERVAL", c.BalanceInterval, time.Second, 5*time.Minute)
	between(e, "DRAIN_TIMEOUT", c.DrainTimeout, time.Second, 10*time.Minute)
	if !e.has("BALANCE_INTERVAL") && !ownership.Shareable(c.OwnershipExpiry, c.BalanceInterval) {
		e.add(
			"OWNERSHIP_EXPIRY",
			"is %s; must be at least twice BALANCE_INTERVAL (%s), or replicas lose partitions that they are still reading",
			Plain(c.OwnershipExpiry),
			Plain(c.BalanceInterval),
		)
	}

	if len(c.ReplicaName) > 200 || !utf8.ValidString(c.ReplicaName) {
		e.add("REPLICA_NAME", "must be UTF-8, at most 200 bytes")
	}
}

func (c *Config) validateDuties(e *configError) {
	between(e, "LEASE_RETENTION", c.LeaseRetention, 24*time.Hour, maxRetention)
	if c.HeartbeatURL.IsSet() {
		if _, err := heartbeat.Parse(c.HeartbeatURL.Reveal()); err != nil {
			e.add("HEARTBEAT_URL", "%v", err)
		}
	}
}

func (c *Config) validateHTTPAndLog(e *configError) {
	if c.HTTPAddr != "" {
		_, port, err := net.SplitHostPort(c.HTTPAddr)
		if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil {
			e.add(
				"HTTP_ADDR",
				"is %s; must be host:port such as :8080 or 127.0.0.1:8080, or empty to turn HTTP off",
				show(c.HTTPAddr),
			)
		}
	}

	c.validateToken(e, "HTTP_INGEST_TOKEN", c.HTTPIngestToken)
	c.validateToken(e, "HTTP_ADMIN_TOKEN", c.HTTPAdminToken)
	if c.HTTPAdminToken.IsSet() && c.HTTPAdminToken.Reveal() == c.HTTPIngestToken.Reveal() {
		e.add("HTTP_ADMIN_TOKEN", "must differ from HTTP_INGEST_TOKEN, so that clients that send readings cannot end windows")
	}

	oneOf(e, "LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	oneOf(e, "LOG_FORMAT", c.LogFormat, LogJSON, LogConsole)
}

// validateToken checks a bearer token.
func (c *Config) validateToken(e *configError, variable string, token Secret) {
	switch text := token.Reveal(); {
	case text == "":
	case len(text) < 16:
		e.add(variable, "is too short to be safe; must be at least 16 characters, for example from: openssl rand -hex 32")
	case len(text) > 1024 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		e.add(variable, "cannot be sent in an HTTP header; must be at most 1024 printable ASCII characters without spaces")
	case c.HTTPAddr == "":
		e.add(variable, "requires HTTP, which is off because HTTP_ADDR is empty: set HTTP_ADDR or remove the token")
	}
}

func (c *Config) validateThrottle(e *configError) {
	between(e, "THROTTLE_WINDOW", c.ThrottleWindow, minWindow, maxWindow)
	oneOf(e, "THROTTLE_STORE", c.ThrottleStore, StoreMemory, StoreBlob, StoreBlobLease, StoreCosmos)
	if len(c.ThrottleScope) > 256 || !utf8.ValidString(c.ThrottleScope) {
		e.add("THROTTLE_SCOPE", "must be UTF-8, at most 256 bytes")
	}

	if c.ThrottleStore == StoreBlobLease {
		if c.ThrottleWindow < bloblease.MinTTL || c.ThrottleWindow > bloblease.MaxTTL {
			e.add(
				"THROTTLE_WINDOW",
				"is %s; must be 15s to 60s with THROTTLE_STORE=blob-lease (%s)",
				Plain(c.ThrottleWindow),
				otherStores,
			)
		}

		claimMargin := throttle.ClaimTTL(0)

		if claim := throttle.ClaimTTL(c.NotifyTimeout); claim < bloblease.MinTTL || claim > bloblease.MaxTTL {
			e.add(
				"NOTIFY_TIMEOUT",
				"is %s; must be %v to %v with THROTTLE_STORE=blob-lease, because a claim is a lease of 15s to 60s and 10s "+
					"longer than NOTIFY_TIMEOUT (%s)",
				Plain(c.NotifyTimeout),
				bloblease.MinTTL-claimMargin,
				bloblease.MaxTTL-claimMargin,
				otherStores,
			)
		}
	}
}

const otherStores = "THROTTLE_STORE=blob and THROTTLE_STORE=cosmos have no such limit"

// What a window may be.
const (
	minWindow = time.Second
	maxWindow = 24 * time.Hour
)

// between adds an error for a value outside low to high.
func between[T int | time.Duration](e *configError, variable string, value, low, high T) {
	if value < low || value > high {
		e.add(variable, "is %s; must be %s to %s", Plain(value), Plain(low), Plain(high))
	}
}

// Plain formats a number or a duration the way people write it: 5m, not 5m0s.
func Plain[T int | time.Duration](value T) string {
	text := fmt.Sprint(value)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}

	return text
}

// oneOf adds an error for a value that is not in choices.
func oneOf(e *configError, variable string, value Choice, choices ...Choice) {
	if slices.Contains(choices, value) {
		return
	}

	var words []string
	for _, c := range choices {
		words = append(words, string(c))
	}

	e.add(variable, "is %s; must be %s", show(string(value)), humanize.Or(words))
}

// A Warning is about a setting that works, but perhaps not as intended.
type Warning struct {
	Variable string
	Text     string // continues "VARIABLE …"
}

func (w Warning) String() string { return w.Variable + " " + w.Text }

const (
	usualGrace       = 30 * time.Second // between SIGTERM and SIGKILL, in Kubernetes and Container Apps
	shutdownMargin   = 5 * time.Second  // what shutting down takes besides draining
	defaultRetention = 24 * time.Hour   // of a new IoT Hub
)

// warnings returns what in a valid c may not be intended.
func (c Config) warnings(environ []string) []Warning {
	var list []Warning
	warn := func(variable, format string, args ...any) {
		list = append(list, Warning{variable, fmt.Sprintf(format, args...)})
	}
	if c.EventHubName != "" && c.IoTHubConnectionString.IsSet() {
		warn("EVENTHUB_NAME", "is ignored: the event hub's name comes from IOTHUB_CONNECTION_STRING")
	}

	if c.ThrottleStore == StoreMemory {
		switch platform := orchestrator(environ); {
		case platform != "":
			warn(
				"THROTTLE_STORE",
				"is memory on %s: with more than one replica a device can alert once per replica; use blob or cosmos",
				platform,
			)

		case c.CheckpointStore != StoreMemory:
			warn(
				"THROTTLE_STORE",
				"is memory, but with CHECKPOINT_STORE=%s replicas share the hub: run only one replica, or use blob or cosmos",
				c.CheckpointStore,
			)
		}
	}

	if c.CheckpointStore == StoreMemory {
		warn(
			"CHECKPOINT_STORE",
			"is memory: every start begins at EVENTHUB_START=%v, which repeats or skips events; run only one replica",
			c.EventHubStart,
		)
	}

	window, whose := c.shortestWindow()
	if takeover := c.OwnershipExpiry + c.BalanceInterval; c.CheckpointStore != StoreMemory && takeover > window {
		warn(
			"OWNERSHIP_EXPIRY",
			"and BALANCE_INTERVAL add up to %s, longer than %s (%s): while the partitions of a dead replica are taken over, "+
				"alerts may be that late",
			Plain(takeover),
			whose,
			Plain(window),
		)
	}

	if c.DrainTimeout+shutdownMargin >= usualGrace {
		warn(
			"DRAIN_TIMEOUT",
			"is %s, close to or above the usual grace period of %s: allow the container at least %s, or it is killed before "+
				"it has finished",
			Plain(c.DrainTimeout),
			Plain(usualGrace),
			Plain(c.DrainTimeout+2*shutdownMargin),
		)
	}

	if c.DrainTimeout < c.NotifyTimeout {
		warn(
			"DRAIN_TIMEOUT",
			"is %s, shorter than NOTIFY_TIMEOUT (%s): a stop may interrupt a delivery attempt, and its alert is sent again",
			Plain(c.DrainTimeout),
			Plain(c.NotifyTimeout),
		)
	}

	if c.NotifyGiveUp >= defaultRetention {
		warn(
			"NOTIFY_GIVE_UP",
			"is %s: make sure that the hub retains events longer (a new IoT Hub retains them for 1 day), or alerts that wait "+
				"for a receiver may be lost",
			Plain(c.NotifyGiveUp),
		)
	}

	if !c.HasStorage() {
		warn(
			"DEAD_LETTER_CONTAINER",
			"is ignored without Azure Storage: alerts that cannot be delivered are only written to the log",
		)
	}

	if c.ThrottleStore != StoreCosmos && (c.CosmosConnectionString.IsSet() || c.CosmosEndpoint != "") {
		warn("THROTTLE_STORE", "is %s: the Cosmos DB settings are ignored", c.ThrottleStore)
	}

	if c.NotifyWebhookSecret.IsSet() && !slices.ContainsFunc(c.receivers(), receivers.Entry.IsWebhook) {
		warn("NOTIFY_WEBHOOK_SECRET", "is ignored: NOTIFY_URLS has no webhook")
	}

	c.warnOfRules(warn)

	return list
}

// receivers returns the entries of NOTIFY_URLS that are valid.
func (c Config) receivers() []receivers.Entry {
	var list []receivers.Entry
	for _, text := range c.NotifyURLs.Reveal() {
		if r, err := receivers.Parse(text); err == nil {
			list = append(list, r)
		}
	}

	return list
}

// orchestrator returns the name of the platform that runs this process and could run
// several; empty if there is no sign of one.
func orchestrator(environ []string) string {
	for _, entry := range environ {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case "CONTAINER_APP_NAME":
			return "Container Apps"
		case "KUBERNETES_SERVICE_HOST":
			return "Kubernetes"
		}
	}

	return ""
}
