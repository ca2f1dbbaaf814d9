package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/lease/bloblease"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/ops/leader"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
)

// validate reports everything in c that cannot work to e: first what can be
// said of one variable alone, then what only several together tell.
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
}

const missingHub = "is missing: the hub's Event Hub-compatible endpoint, Endpoint=sb://...;EntityPath=... (portal: IoT Hub > Built-in endpoints); " +
	"or, keyless, EVENTHUB_NAMESPACE and EVENTHUB_NAME; or IOTHUB_CONNECTION_STRING, the hub's own service string"

func (c *Config) validateHub(e *configError) {
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
		e.add(given[0], "is set and so is %s: there is one hub to read from, keep one of them", strings.Join(given[1:], " and "))
	}

	if c.EventHubConnectionString.IsSet() {
		address, err := parseEventHub(c.EventHubConnectionString.Reveal())
		switch {
		case err != nil:
			e.add("EVENTHUB_CONNECTION_STRING", "%v", err)
		case address.Name == "" && c.EventHubName == "":
			e.add("EVENTHUB_NAME", "is missing: EVENTHUB_CONNECTION_STRING has no EntityPath, so the event hub must be named here (or take the hub's own string, portal: IoT Hub > Built-in endpoints)")
		case address.Name != "" && c.EventHubName != "" && address.Name != c.EventHubName:
			e.add("EVENTHUB_NAME", "is %s, but the EntityPath of EVENTHUB_CONNECTION_STRING names another hub: remove one of them", show(c.EventHubName))
		}
	}
	if c.EventHubNamespace != "" {
		validateNamespace(c.EventHubNamespace, e)
		if c.EventHubName == "" {
			e.add("EVENTHUB_NAME", "is missing: EVENTHUB_NAMESPACE needs the name of the event hub in it")
		}
	}
	if c.IoTHubConnectionString.IsSet() {
		if _, err := parseIoTHub(c.IoTHubConnectionString.Reveal()); err != nil {
			e.add("IOTHUB_CONNECTION_STRING", "%v", err)
		}
	}
	if c.EventHubName != "" && !entityName.MatchString(c.EventHubName) {
		e.add("EVENTHUB_NAME", "is %s; must be the event hub's name alone: letters, digits, '.', '-' and '_'", show(c.EventHubName))
	}
	if c.EventHubConsumerGroup != "$Default" && (len(c.EventHubConsumerGroup) > 50 || !entityName.MatchString(c.EventHubConsumerGroup)) &&
		!strings.EqualFold(c.EventHubConsumerGroup, "$default") {
		e.add("EVENTHUB_CONSUMER_GROUP", "is %s; must be $Default or a consumer group's name: up to 50 letters, digits, '.', '-' and '_'", show(c.EventHubConsumerGroup))
	}
	between(e, "EVENTHUB_PREFETCH", c.EventHubPrefetch, 1, eventhubs.MaxPrefetch)
}

// entityName is a name in an Event Hubs namespace.
var entityName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?$`)

func validateNamespace(namespace string, e *configError) {
	const name = "EVENTHUB_NAMESPACE"
	bare := namespace
	if _, after, ok := strings.Cut(bare, "://"); ok {
		bare = after
	}
	bare = strings.TrimSuffix(strings.TrimSuffix(bare, "/"), ":443")
	switch {
	case bare != namespace && isHostName(bare):
		e.add(name, "is %s; must be the host name alone, with no scheme, port or path", show(namespace))
	case isHostName(namespace):
	case isHostName(bare + ".servicebus.windows.net"):
		e.add(name, "is %s; must be the whole host name, with .servicebus.windows.net after it", show(namespace))
	default:
		e.add(name, "is %s; must be a host name such as NAME.servicebus.windows.net (portal: Event Hubs namespace > Overview)", show(namespace))
	}
}

func (c *Config) validateReadings(e *configError) {
	if math.IsNaN(c.TemperatureThreshold) || math.IsInf(c.TemperatureThreshold, 0) {
		e.add("TEMPERATURE_THRESHOLD", "must be a finite number, for example 80")
	}
	if _, err := telemetry.NewDecoder(c.TemperatureField.String()); err != nil {
		if mayBeSecret(c.TemperatureField.String()) {
			err = errors.New("it is not shown because it may hold a secret; must be paths such as machine.temperature, separated by commas")
		}
		e.add("TEMPERATURE_FIELD", "cannot be used: %v", err)
	}
}

func (c *Config) validateStorage(e *configError) {
	oneOf(e, "CHECKPOINT_STORE", c.CheckpointStore, StoreBlob, StoreMemory)
	if c.StorageConnectionString.IsSet() {
		if c.StorageAccountURL != "" {
			e.add("STORAGE_CONNECTION_STRING", "is set and so is STORAGE_ACCOUNT_URL: keep one of them (the URL is the keyless way)")
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
				e.add("STORAGE_ACCOUNT_URL", "names another service of the account (%s); must be its blob service: https://ACCOUNT.blob.core.windows.net", strings.Trim(other, "."))
			}
		}
	}
	if c.needsStorage() && !c.HasStorage() {
		e.add("STORAGE_CONNECTION_STRING", "is missing: Azure Storage for %s (portal: storage account > Access keys), or, keyless, STORAGE_ACCOUNT_URL", c.storageUses())
	}

	containers := []struct{ variable, name string }{
		{"CHECKPOINT_CONTAINER", c.CheckpointContainer},
		{"THROTTLE_CONTAINER", c.ThrottleContainer},
		{"DEAD_LETTER_CONTAINER", c.DeadLetterContainer},
	}
	for i, container := range containers {
		if len(container.name) < 3 || len(container.name) > 63 || !containerName.MatchString(container.name) {
			e.add(container.variable, "is %s; must be 3 to 63 lower-case letters, digits and single '-' between them", show(container.name))
		}
		for _, earlier := range containers[:i] {
			if container.name == earlier.name {
				e.add(container.variable, "is %s, and so is %s: each needs a container of its own", show(container.name), earlier.variable)
			}
		}
	}
	between(e, "CHECKPOINT_INTERVAL", c.CheckpointInterval, 100*time.Millisecond, 10*time.Minute)
}

// containerName is Azure's rule but for the length.
var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)

// storageUses names the settings that want Azure Storage.
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
			e.add("COSMOS_CONNECTION_STRING", "is set and so is COSMOS_ENDPOINT: keep one of them (the endpoint is the keyless way)")
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
		e.add("COSMOS_CONNECTION_STRING", "is missing: Cosmos DB for THROTTLE_STORE=cosmos (portal: Cosmos DB account > Keys), or, keyless, COSMOS_ENDPOINT")
	}
	cosmosName(e, "COSMOS_DATABASE", c.CosmosDatabase)
	cosmosName(e, "COSMOS_CONTAINER", c.CosmosContainer)
}

func cosmosName(e *configError, variable, name string) {
	if len(name) > 255 || strings.ContainsAny(name, `/\?#`) || strings.TrimSpace(name) != name || !utf8.ValidString(name) {
		e.add(variable, `is %s; must be a name of up to 255 bytes with no / \ ? # and no space at its ends`, show(name))
	}
}

func (c *Config) validateNotify(e *configError) {
	if _, err := webhook.ParseSecret(c.NotifyWebhookSecret.Reveal()); err != nil {
		e.add("NOTIFY_WEBHOOK_SECRET", "%v", err)
	}
	if _, err := receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{Log: zap.NewNop()}); err != nil {
		e.add("NOTIFY_URLS", "%v", err)
	}
	between(e, "NOTIFY_TIMEOUT", c.NotifyTimeout, time.Second, 5*time.Minute)
	between(e, "NOTIFY_CONCURRENCY", c.NotifyConcurrency, 1, 4096)
	between(e, "NOTIFY_GIVE_UP", c.NotifyGiveUp, time.Second, longestRetention)
}

// longestRetention is the longest that any tier of Event Hubs keeps events.
const longestRetention = 90 * 24 * time.Hour

func (c *Config) validateReplicas(e *configError) {
	between(e, "OWNERSHIP_EXPIRY", c.OwnershipExpiry, 2*time.Second, 10*time.Minute)
	between(e, "BALANCE_INTERVAL", c.BalanceInterval, time.Second, 5*time.Minute)
	between(e, "DRAIN_TIMEOUT", c.DrainTimeout, time.Second, 10*time.Minute)
	if !e.has("BALANCE_INTERVAL") && c.OwnershipExpiry < 2*c.BalanceInterval {
		e.add("OWNERSHIP_EXPIRY", "is %s; must be at least twice BALANCE_INTERVAL (%s), else replicas lose partitions that they still read", Plain(c.OwnershipExpiry), Plain(c.BalanceInterval))
	}
	if len(c.ReplicaName) > 200 || !utf8.ValidString(c.ReplicaName) {
		e.add("REPLICA_NAME", "must be UTF-8, at most 200 bytes")
	}
}

func (c *Config) validateDuties(e *configError) {
	between(e, "LEASE_RETENTION", c.LeaseRetention, 24*time.Hour, 87600*time.Hour)
	if late := c.ThrottleWindow + c.NotifyGiveUp; !e.has("THROTTLE_WINDOW") && !e.has("NOTIFY_GIVE_UP") && c.LeaseRetention <= late {
		e.add("LEASE_RETENTION", "is %s; must be more than THROTTLE_WINDOW and NOTIFY_GIVE_UP together (%s), or an alert that is retried could be repeated", Plain(c.LeaseRetention), Plain(late))
	}
	if c.SummarySchedule != "" {
		if _, err := leader.ParseSchedule(c.SummarySchedule); err != nil {
			e.add("SUMMARY_SCHEDULE", "is %s; must be five cron fields such as \"0 8 * * *\" (every day at 8), or @daily", show(c.SummarySchedule))
		}
	}
}

func (c *Config) validateHTTPAndLog(e *configError) {
	if c.HTTPAddr != "" {
		_, port, err := net.SplitHostPort(c.HTTPAddr)
		_, notNumber := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil && len(c.HTTPAddr) <= 5 && strings.Trim(c.HTTPAddr, "0123456789") == "":
			e.add("HTTP_ADDR", "is %s; must be host:port: did you mean \":%s\"?", show(c.HTTPAddr), c.HTTPAddr)
		case err != nil || notNumber != nil:
			e.add("HTTP_ADDR", "is %s; must be host:port such as :8080 or 127.0.0.1:8080, or empty to turn HTTP off", show(c.HTTPAddr))
		}
	}
	c.validateToken(e, "HTTP_INGEST_TOKEN", c.HTTPIngestToken)
	c.validateToken(e, "HTTP_ADMIN_TOKEN", c.HTTPAdminToken)
	if c.HTTPAdminToken.IsSet() && c.HTTPAdminToken.Reveal() == c.HTTPIngestToken.Reveal() {
		e.add("HTTP_ADMIN_TOKEN", "must differ from HTTP_INGEST_TOKEN: who may send readings must not be able to end windows")
	}
	oneOf(e, "LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	oneOf(e, "LOG_FORMAT", c.LogFormat, LogJSON, LogConsole)
}

// validateToken checks a bearer token.
func (c *Config) validateToken(e *configError, variable string, token Secret) {
	switch text := token.Reveal(); {
	case text == "":
	case len(text) < 16:
		e.add(variable, "is too short to be safe; must be at least 16 characters, as from: openssl rand -hex 32")
	case len(text) > 1024 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		e.add(variable, "cannot be sent in an HTTP header; must be at most 1024 printable ASCII characters without spaces")
	case c.HTTPAddr == "":
		e.add(variable, "needs HTTP, which an empty HTTP_ADDR turns off: remove one of them")
	}
}

func (c *Config) validateThrottle(e *configError) {
	between(e, "THROTTLE_WINDOW", c.ThrottleWindow, time.Second, 24*time.Hour)
	oneOf(e, "THROTTLE_STORE", c.ThrottleStore, StoreMemory, StoreBlob, StoreBlobLease, StoreCosmos)
	if len(c.ThrottleScope) > 256 || !utf8.ValidString(c.ThrottleScope) {
		e.add("THROTTLE_SCOPE", "must be UTF-8, at most 256 bytes")
	}
	if c.NotifyGiveUp < c.ThrottleWindow {
		e.add("NOTIFY_GIVE_UP", "is %s; must be at least THROTTLE_WINDOW (%s)", Plain(c.NotifyGiveUp), Plain(c.ThrottleWindow))
	}
	if c.ThrottleStore == StoreBlobLease {
		const instead = "THROTTLE_STORE=blob and THROTTLE_STORE=cosmos take any"
		if c.ThrottleWindow < bloblease.MinTTL || c.ThrottleWindow > bloblease.MaxTTL {
			e.add("THROTTLE_WINDOW", "is %s, and THROTTLE_STORE=blob-lease takes 15s to 60s; %s", Plain(c.ThrottleWindow), instead)
		}
		claimMargin := throttle.ClaimTTL(0)
		if claim := throttle.ClaimTTL(c.NotifyTimeout); claim < bloblease.MinTTL || claim > bloblease.MaxTTL {
			e.add("NOTIFY_TIMEOUT", "is %s, and THROTTLE_STORE=blob-lease takes %v to %v (the claim, 10s longer, is a lease of 15s to 60s); %s",
				Plain(c.NotifyTimeout), bloblease.MinTTL-claimMargin, bloblease.MaxTTL-claimMargin, instead)
		}
	}
}

// between reports a value outside low to high.
func between[T int | time.Duration](e *configError, variable string, value, low, high T) {
	if value < low || value > high {
		e.add(variable, "is %s; must be %s to %s", Plain(value), Plain(low), Plain(high))
	}
}

// Plain shows a number or a duration the way people write it: 5m, not 5m0s.
func Plain[T int | time.Duration](value T) string {
	text := fmt.Sprint(value)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// oneOf reports a value that is none of choices.
func oneOf(e *configError, variable string, value Choice, choices ...Choice) {
	if slices.Contains(choices, value) {
		return
	}
	var words []string
	for _, c := range choices {
		words = append(words, string(c))
	}
	last := len(words) - 1
	e.add(variable, "is %s; must be %s", show(string(value)), strings.Join(words[:last], ", ")+" or "+words[last])
}

// A Warning tells of a setting that works, but perhaps not as meant.
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

// warnings returns what a valid c may not have meant.
func (c Config) warnings(environ []string) []Warning {
	var list []Warning
	warn := func(variable, format string, args ...any) {
		list = append(list, Warning{variable, fmt.Sprintf(format, args...)})
	}
	if c.EventHubName != "" && c.IoTHubConnectionString.IsSet() {
		warn("EVENTHUB_NAME", "is not used: IOTHUB_CONNECTION_STRING tells the event hub's name")
	}
	if c.ThrottleStore == StoreMemory {
		switch platform := orchestrator(environ); {
		case platform != "":
			warn("THROTTLE_STORE", "is memory on %s: with more than one replica a device gets an alert from each; use blob or cosmos", platform)
		case c.CheckpointStore != StoreMemory:
			warn("THROTTLE_STORE", "is memory while CHECKPOINT_STORE=%s lets replicas share the hub: run one only, or use blob or cosmos", c.CheckpointStore)
		}
	}
	if c.CheckpointStore == StoreMemory {
		warn("CHECKPOINT_STORE", "is memory: every start begins at EVENTHUB_START=%v, which repeats or skips events, and a second replica would fight over partitions", c.EventHubStart)
	}
	if takeover := c.OwnershipExpiry + c.BalanceInterval; c.CheckpointStore != StoreMemory && takeover > c.ThrottleWindow {
		warn("OWNERSHIP_EXPIRY", "and BALANCE_INTERVAL make taking over a dead replica's partitions last up to %s, longer than THROTTLE_WINDOW (%s): alerts may come that late", Plain(takeover), Plain(c.ThrottleWindow))
	}
	if c.DrainTimeout+shutdownMargin >= usualGrace {
		warn("DRAIN_TIMEOUT", "is %s, near or over the usual grace period of %s: give the container at least %s or it is killed while it drains", Plain(c.DrainTimeout), Plain(usualGrace), Plain(c.DrainTimeout+2*shutdownMargin))
	}
	if c.DrainTimeout < c.NotifyTimeout {
		warn("DRAIN_TIMEOUT", "is %s, shorter than NOTIFY_TIMEOUT (%s): stopping may cut an attempt short, and its alert is sent again", Plain(c.DrainTimeout), Plain(c.NotifyTimeout))
	}
	if c.NotifyGiveUp >= defaultRetention {
		warn("NOTIFY_GIVE_UP", "is %s: make sure that the hub keeps events longer (a new IoT Hub keeps them 1 day), else what waits for a receiver may be lost", Plain(c.NotifyGiveUp))
	}
	if !c.HasStorage() {
		warn("DEAD_LETTER_CONTAINER", "is not used without Azure Storage: alerts that cannot be delivered have no durable place")
	}
	if c.ThrottleStore != StoreCosmos && (c.CosmosConnectionString.IsSet() || c.CosmosEndpoint != "") {
		warn("THROTTLE_STORE", "is %s: Cosmos DB is configured but not used", c.ThrottleStore)
	}
	if c.NotifyWebhookSecret.IsSet() && !slices.ContainsFunc(c.NotifyURLs.Reveal(), IsWeb) {
		warn("NOTIFY_WEBHOOK_SECRET", "is not used: NOTIFY_URLS has no webhook")
	}
	return list
}

// IsWeb says whether a URL is that of a webhook.
func IsWeb(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// orchestrator names what runs this process and could run more of them; empty
// if there is no sign of any.
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
