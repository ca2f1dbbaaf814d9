package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/humanize"
	"alertworker/internal/lease/cosmoslease"
	"alertworker/internal/notify/heartbeat"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
)

// validate adds all errors in c to e, those of a single variable before those of
// several together.
func (c *Config) validate(e *configError) {
	c.validateHub(e)
	c.validateReadings(e)
	c.validateStorage(e)
	for _, s := range Stores {
		if s.validate != nil {
			s.validate(c, e)
		}
	}
	c.validateNotify(e)
	c.validateReplicas(e)
	c.validateHTTPAndLog(e)
	c.validateThrottle(e)
	c.validateRules(e)
}

const missingHub = "is missing: set it to the hub's Event Hub-compatible endpoint, Endpoint=sb://...;EntityPath=... " +
	"(portal: IoT Hub > Built-in endpoints); " +
	"or set EVENTHUB_NAMESPACE and EVENTHUB_NAME to read without a key; or IOTHUB_CONNECTION_STRING, the hub's own " +
	"service connection string"

// validateHub checks which hub is read, and how.
func (c *Config) validateHub(e *configError) {
	start := c.EventHubStart.Time
	e.addIf(
		start.After(time.Now().Add(time.Minute)),
		"EVENTHUB_START",
		"is %s, in the future: nothing that devices send until then would be read",
		start.Format(time.RFC3339),
	)

	c.validateHubAddress(e)

	e.addIf(
		c.EventHubName != "" && !entityName.MatchString(c.EventHubName),
		"EVENTHUB_NAME",
		"is %s; must be only the event hub's name: letters, digits, '.', '-' and '_'",
		show(c.EventHubName),
	)

	isDefault := strings.EqualFold(c.EventHubConsumerGroup, "$default")
	e.addIf(
		!isDefault && (len(c.EventHubConsumerGroup) > 50 || !entityName.MatchString(c.EventHubConsumerGroup)),
		"EVENTHUB_CONSUMER_GROUP",
		"is %s; must be $Default or a consumer group's name: up to 50 letters, digits, '.', '-' and '_'",
		show(c.EventHubConsumerGroup),
	)

	between(e, "EVENTHUB_PREFETCH", c.EventHubPrefetch, 1, eventhubs.MaxPrefetch)
	oneOf(e, "EVENTHUB_TRANSPORT", c.EventHubTransport, TransportAMQP, TransportWebSocket)
}

// validateHubAddress checks that the settings name one hub, and one only, in full.
func (c *Config) validateHubAddress(e *configError) {
	var given []string
	for _, variable := range []string{"EVENTHUB_CONNECTION_STRING", "EVENTHUB_NAMESPACE", "IOTHUB_CONNECTION_STRING"} {
		if c.shown(position(variable)) != "" || e.has(variable) {
			given = append(given, variable)
		}
	}
	switch {
	case len(given) == 0:
		e.add("EVENTHUB_CONNECTION_STRING", missingHub)
	case len(given) > 1:
		const text = "and %s are set, but there is only one hub to read from: remove all but one"
		e.add(given[0], text, strings.Join(given[1:], " and "))
	}

	if c.EventHubConnectionString.IsSet() {
		address, err := parseEventHub(c.EventHubConnectionString.Reveal())
		e.addError("EVENTHUB_CONNECTION_STRING", err)
		e.addIf(
			err == nil && address.Name+c.EventHubName == "",
			"EVENTHUB_NAME",
			"is missing: EVENTHUB_CONNECTION_STRING has no EntityPath, so set the name of the event hub here (or use the "+
				"hub's own connection string, portal: IoT Hub > Built-in endpoints)",
		)
		e.addIf(
			address.Name != "" && c.EventHubName != "" && address.Name != c.EventHubName,
			"EVENTHUB_NAME",
			"is %s, but the EntityPath of EVENTHUB_CONNECTION_STRING is a different hub: remove one of them",
			show(c.EventHubName),
		)
	}

	if c.EventHubNamespace != "" {
		e.addIf(
			len(c.EventHubNamespace) > 253 || !hostName.MatchString(c.EventHubNamespace),
			"EVENTHUB_NAMESPACE",
			"is %s; must be only the full host name, such as NAME.servicebus.windows.net (portal: Event Hubs namespace > "+
				"Overview)",
			show(c.EventHubNamespace),
		)
		e.addIf(c.EventHubName == "", "EVENTHUB_NAME", "is missing: EVENTHUB_NAMESPACE requires the name of the event hub")
	}

	if c.IoTHubConnectionString.IsSet() {
		_, err := parseIoTHub(c.IoTHubConnectionString.Reveal())
		e.addError("IOTHUB_CONNECTION_STRING", err)
	}
}

// entityName is a name in an Event Hubs namespace.
var entityName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?$`)

// validateReadings checks the one rule that variables describe, and where messages have their time.
func (c *Config) validateReadings(e *configError) {
	isSet := c.HasRules() || e.has("RULES") || e.has("RULES_FILE") || slices.Contains(c.RulesFile.beside, "TEMPERATURE_THRESHOLD")
	e.addIf(!isSet, "TEMPERATURE_THRESHOLD", "is missing: %s; or set RULES or RULES_FILE", hints["TEMPERATURE_THRESHOLD"])
	e.addIf(!finite(c.TemperatureThreshold), "TEMPERATURE_THRESHOLD", "must be a finite number, for example 80")

	_, err := rules.NewClock(c.TimeProperty)
	e.addError("TIME_PROPERTY", asName(c.TimeProperty, err))
	isProperty := c.TimeProperty != "" && !strings.HasPrefix(c.TimeProperty, "body:") && !strings.HasPrefix(c.TimeProperty, "$")
	if isProperty {
		e.addError("TIME_PROPERTY", checkProperty(c.TimeProperty))
	}

	e.addError("TEMPERATURE_FIELD", checkField(c.TemperatureField))
}

// finite reports whether f is a number that readings can be compared with.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// validateStorage checks where Azure Storage is, whether it is needed, and the names of containers.
func (c *Config) validateStorage(e *configError) {
	oneOf(e, "CHECKPOINT_STORE", c.CheckpointStore, StoreBlob, StoreMemory)
	if c.StorageConnectionString.IsSet() {
		e.addIf(
			c.StorageAccountURL != "",
			"STORAGE_CONNECTION_STRING",
			"and STORAGE_ACCOUNT_URL are both set: remove one of them (the URL is for access without a key)",
		)
		e.addError("STORAGE_CONNECTION_STRING", checkStorage(c.StorageConnectionString.Reveal()))
	}

	if c.StorageAccountURL != "" {
		const example = "https://ACCOUNT.blob.core.windows.net"
		if err := azure.CheckEndpoint(c.StorageAccountURL, example); err != nil {
			e.add("STORAGE_ACCOUNT_URL", "is %s; %v", show(c.StorageAccountURL), err)
		}

		other := strings.Trim(otherService.FindString(c.StorageAccountURL), ".")
		e.addIf(
			other != "",
			"STORAGE_ACCOUNT_URL",
			"is the account's %s service; must be its blob service: %s",
			other,
			example,
		)
	}

	var uses []string // settings that require Azure Storage
	if c.CheckpointStore == StoreBlob {
		uses = append(uses, "CHECKPOINT_STORE=blob")
	}

	if c.Store().Service == azureStorage {
		uses = append(uses, "THROTTLE_STORE="+string(c.ThrottleStore))
	}

	e.addIf(
		len(uses) > 0 && !c.HasStorage(),
		"STORAGE_CONNECTION_STRING",
		"is missing: required by %s (portal: storage account > Access keys); or set STORAGE_ACCOUNT_URL for access "+
			"without a key",
		strings.Join(uses, " and "),
	)

	between(e, "CHECKPOINT_INTERVAL", c.CheckpointInterval, 100*time.Millisecond, 10*time.Minute)

	owners := map[string]string{} // of containers: no two may be the same
	for _, container := range []struct{ variable, name string }{
		{"CHECKPOINT_CONTAINER", c.CheckpointContainer},
		{"THROTTLE_CONTAINER", c.ThrottleContainer},
		{"DEAD_LETTER_CONTAINER", c.DeadLetterContainer},
	} {
		e.addIf(
			len(container.name) < 3 || len(container.name) > 63 || !containerName.MatchString(container.name),
			container.variable,
			"is %s; must be 3 to 63 lower-case letters, digits and single hyphens between them",
			show(container.name),
		)

		owner := cmp.Or(owners[container.name], container.variable)
		owners[container.name] = owner
		e.addIf(
			owner != container.variable,
			container.variable,
			"is %s, the same as %s: each needs a container of its own",
			show(container.name),
			owner,
		)
	}
}

// otherService is in the addresses of a storage account's services that have no blobs.
var otherService = regexp.MustCompile(`\.(dfs|queue|table|file)\.`)

// containerName is Azure's rule except for the length.
var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)

// validateCosmos checks where Cosmos DB is, whether it is needed, and its names.
func (c *Config) validateCosmos(e *configError) {
	if c.CosmosConnectionString.IsSet() {
		e.addIf(
			c.CosmosEndpoint != "",
			"COSMOS_CONNECTION_STRING",
			"and COSMOS_ENDPOINT are both set: remove one of them (the endpoint is for access without a key)",
		)
		e.addError("COSMOS_CONNECTION_STRING", checkCosmos(c.CosmosConnectionString.Reveal()))
	}

	if c.CosmosEndpoint != "" {
		_, err := cosmoslease.WithCredential(c.CosmosEndpoint, nil)
		e.addIf(err != nil, "COSMOS_ENDPOINT", "is %s; %v", show(c.CosmosEndpoint), err)
	}

	e.addIf(
		c.ThrottleStore == StoreCosmos && !c.hasCosmos(),
		"COSMOS_CONNECTION_STRING",
		"is missing: required by THROTTLE_STORE=cosmos (portal: Cosmos DB account > Keys); or set COSMOS_ENDPOINT for "+
			"access without a key",
	)

	for variable, name := range map[string]string{"COSMOS_DATABASE": c.CosmosDatabase, "COSMOS_CONTAINER": c.CosmosContainer} {
		e.addIf(
			!isText(name, 255) || strings.ContainsAny(name, `/\?#`) || strings.TrimSpace(name) != name,
			variable,
			`is %s; must be at most 255 bytes, without / \ ? # and without spaces at either end`,
			show(name),
		)
	}
}

// hasCosmos reports whether Cosmos DB is configured.
func (c Config) hasCosmos() bool {
	return c.CosmosConnectionString.IsSet() || c.CosmosEndpoint != ""
}

// isText reports whether s is UTF-8 of at most that many bytes.
func isText(s string, most int) bool { return len(s) <= most && utf8.ValidString(s) }

// validateNotify checks the receivers, what messages have in common, and how long deliveries are tried.
func (c *Config) validateNotify(e *configError) {
	_, err := webhook.ParseSecrets(c.NotifyWebhookSecret.Reveal())
	e.addError("NOTIFY_WEBHOOK_SECRET", err)

	e.addIf(c.NotifyURLs == URLs{}, "NOTIFY_URLS", "is missing: %s", hints["NOTIFY_URLS"])
	_, err = receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{Log: zap.NewNop()})
	e.addError("NOTIFY_URLS", err)

	if c.PublicURL != "" {
		err := checkPage(c.PublicURL)
		e.addIf(err != nil, "PUBLIC_URL", "is %s; %v", show(c.PublicURL), err)
	}

	_, err = time.LoadLocation(c.TimeZone)
	e.addIf(
		err != nil || c.TimeZone == "Local",
		"TIME_ZONE",
		"is %s; must be UTC or the name of a time zone, such as Europe/Berlin",
		show(c.TimeZone),
	)

	between(e, "NOTIFY_TIMEOUT", c.NotifyTimeout, time.Second, 5*time.Minute)
	between(e, "NOTIFY_CONCURRENCY", c.NotifyConcurrency, 1, 4096)
	between(e, "NOTIFY_GIVE_UP", c.NotifyGiveUp, time.Second, longestRetention)
	if e.has("NOTIFY_TIMEOUT") {
		return
	}

	least := 2 * throttle.ClaimTTL(c.NotifyTimeout)
	e.addIf(
		c.NotifyGiveUp < least,
		"NOTIFY_GIVE_UP",
		"is %s; must be at least %s, the time of two attempts with NOTIFY_TIMEOUT=%s, or a slow receiver makes every "+
			"alert a dead letter",
		humanize.Plain(c.NotifyGiveUp),
		humanize.Plain(least),
		humanize.Plain(c.NotifyTimeout),
	)
}

// maxRetention is the longest that anything is kept.
const maxRetention = 87600 * time.Hour

// longestRetention is the longest that any tier of Event Hubs keeps events.
const longestRetention = 90 * 24 * time.Hour

// validateReplicas checks how replicas share the partitions, and the duties that one of them performs for all.
func (c *Config) validateReplicas(e *configError) {
	between(e, "OWNERSHIP_EXPIRY", c.OwnershipExpiry, 2*time.Second, 10*time.Minute)
	between(e, "BALANCE_INTERVAL", c.BalanceInterval, time.Second, 5*time.Minute)
	between(e, "DRAIN_TIMEOUT", c.DrainTimeout, time.Second, 10*time.Minute)
	e.addIf(
		!e.has("BALANCE_INTERVAL") && c.OwnershipExpiry < 2*c.BalanceInterval,
		"OWNERSHIP_EXPIRY",
		"is %s; must be at least twice BALANCE_INTERVAL (%s), or replicas lose partitions that they are still reading",
		humanize.Plain(c.OwnershipExpiry),
		humanize.Plain(c.BalanceInterval),
	)

	e.addIf(!isText(c.ReplicaName, 200), "REPLICA_NAME", "must be UTF-8, at most 200 bytes")

	between(e, "LEASE_RETENTION", c.LeaseRetention, 24*time.Hour, maxRetention)
	if c.HeartbeatURL.IsSet() {
		_, err := heartbeat.Parse(c.HeartbeatURL.Reveal())
		e.addError("HEARTBEAT_URL", err)
	}
}

// validateHTTPAndLog checks what the replica serves, to whom, and what it logs.
func (c *Config) validateHTTPAndLog(e *configError) {
	_, port, _ := net.SplitHostPort(c.HTTPAddr) // empty if it cannot be split
	_, notNumber := strconv.ParseUint(port, 10, 16)
	e.addIf(
		c.HTTPAddr != "" && notNumber != nil,
		"HTTP_ADDR",
		"is %s; must be host:port such as :8080 or 127.0.0.1:8080, or empty to turn HTTP off",
		show(c.HTTPAddr),
	)

	for _, name := range c.httpHosts() {
		e.addIf(
			!anyHostName.MatchString(name),
			"HTTP_HOSTS",
			"has %s; must be host names such as alerts.example.com, separated by commas",
			show(name),
		)
	}

	for variable, token := range map[string]string{
		"HTTP_INGEST_TOKEN": c.HTTPIngestToken.Reveal(), "HTTP_ADMIN_TOKEN": c.HTTPAdminToken.Reveal(),
	} {
		if token == "" {
			continue
		}

		e.addIf(
			len(token) < 16,
			variable,
			"is too short to be safe; must be at least 16 characters, for example from: openssl rand -hex 32",
		)
		e.addIf(
			len(token) > 1024 || !bearer.MatchString(token),
			variable,
			"cannot be sent in an HTTP header; must be at most 1024 printable ASCII characters without spaces",
		)
		e.addIf(
			c.HTTPAddr == "",
			variable,
			"requires HTTP, which is off because HTTP_ADDR is empty: set HTTP_ADDR or remove the token",
		)
	}

	e.addIf(
		c.HTTPAdminToken.IsSet() && c.HTTPAdminToken.Reveal() == c.HTTPIngestToken.Reveal(),
		"HTTP_ADMIN_TOKEN",
		"must differ from HTTP_INGEST_TOKEN, so that clients that send readings cannot end windows",
	)

	oneOf(e, "LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	oneOf(e, "LOG_FORMAT", c.LogFormat, LogJSON, LogConsole)
}

// httpHosts returns the names in HTTP_HOSTS.
func (c *Config) httpHosts() []string {
	return strings.FieldsFunc(c.HTTPHosts, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// anyHostName is the name of a host, perhaps without a dot.
var anyHostName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

// Hosts returns the names by which people reach the page.
func (c *Config) Hosts() []string {
	host, _, _ := net.SplitHostPort(c.HTTPAddr)
	return append(c.httpHosts(), c.ReplicaName, hostOf(c.PublicURL), host)
}

// bearer is a token that HTTP headers can have, except for its length.
var bearer = regexp.MustCompile(`^[!-~]*$`)

// validateThrottle checks the window and where it is stored, which may limit it.
func (c *Config) validateThrottle(e *configError) {
	between(e, "THROTTLE_WINDOW", c.ThrottleWindow, minWindow, maxWindow)
	var stores []Choice
	for _, s := range Stores {
		stores = append(stores, s.Name)
	}
	oneOf(e, "THROTTLE_STORE", c.ThrottleStore, stores...)
	e.addIf(!isText(c.ThrottleScope, 256), "THROTTLE_SCOPE", "must be UTF-8, at most 256 bytes")

	store := c.Store()
	e.addIf(
		!store.Lasts(c.ThrottleWindow),
		"THROTTLE_WINDOW",
		"is %s; must be %s with THROTTLE_STORE=%s (%s)",
		humanize.Plain(c.ThrottleWindow),
		store.lasting(),
		store.Name,
		unlimited(),
	)

	claimMargin := throttle.ClaimTTL(0)
	e.addIf(
		!store.Lasts(throttle.ClaimTTL(c.NotifyTimeout)),
		"NOTIFY_TIMEOUT",
		"is %s; must be %v to %v with THROTTLE_STORE=%s, because a claim is a lease of %s and %v "+
			"longer than NOTIFY_TIMEOUT (%s)",
		humanize.Plain(c.NotifyTimeout),
		store.Shortest-claimMargin,
		store.Longest-claimMargin,
		store.Name,
		store.lasting(),
		claimMargin,
		unlimited(),
	)
}

// What a window may be.
const (
	minWindow = time.Second
	maxWindow = 24 * time.Hour
)

// between adds an error for a value outside low to high.
func between[T int | time.Duration](e *configError, variable string, value, low, high T) {
	if value < low || value > high {
		e.add(variable, "is %s; must be %s to %s", humanize.Plain(value), humanize.Plain(low), humanize.Plain(high))
	}
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

// A warner collects warnings.
type warner []Warning

// warnIf adds a warning if there is reason for it.
func (w *warner) warnIf(reason bool, variable, format string, args ...any) {
	if reason {
		*w = append(*w, Warning{variable, fmt.Sprintf(format, args...)})
	}
}

// warnings returns what in a valid c may not be intended.
func (c Config) warnings(environ []string) []Warning {
	var w warner
	w.warnIf(
		c.EventHubName != "" && c.IoTHubConnectionString.IsSet(),
		"EVENTHUB_NAME",
		"is ignored: the event hub's name comes from IOTHUB_CONNECTION_STRING",
	)

	certs := azure.CertFile()
	w.warnIf(certs != nil, "SSL_CERT_FILE", "%v", certs)
	c.warnOfMemory(&w, environ)
	c.warnOfTimes(&w)

	w.warnIf(
		!c.HasStorage(),
		"DEAD_LETTER_CONTAINER",
		"is ignored without Azure Storage: alerts that cannot be delivered are only written to the log",
	)
	for _, other := range Stores {
		w.warnIf(
			other.Name != c.ThrottleStore && other.isSet != nil && other.isSet(c),
			"THROTTLE_STORE",
			"is %s: the %s settings are ignored",
			c.ThrottleStore,
			other.Service,
		)
	}
	w.warnIf(
		c.NotifyWebhookSecret.IsSet() && !slices.ContainsFunc(c.receivers(), receivers.Entry.IsWebhook),
		"NOTIFY_WEBHOOK_SECRET",
		"is ignored: NOTIFY_URLS has no webhook",
	)

	c.warnOfRules(&w)

	return w
}

// warnOfMemory warns of stores that a restart forgets, and that no other replica sees.
func (c Config) warnOfMemory(w *warner, environ []string) {
	windows := c.ThrottleStore == StoreMemory
	checkpoints := c.CheckpointStore == StoreMemory
	platform := "" // that runs this process and could run several; empty if there is no sign of one
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		platform = cmp.Or(platform, platforms[name])
	}

	w.warnIf(
		windows && platform != "",
		"THROTTLE_STORE",
		"is memory on %s: with more than one replica a device can alert once per replica; use blob or cosmos",
		platform,
	)
	w.warnIf(
		windows && platform == "" && !checkpoints,
		"THROTTLE_STORE",
		"is memory, but with CHECKPOINT_STORE=%s replicas share the hub: run only one replica, or use blob or cosmos",
		c.CheckpointStore,
	)
	w.warnIf(
		checkpoints,
		"CHECKPOINT_STORE",
		"is memory: every start begins at EVENTHUB_START=%v, which repeats or skips events; run only one replica",
		c.EventHubStart,
	)
}

// warnOfTimes warns of durations that do not go together.
func (c Config) warnOfTimes(w *warner) {
	shortest := slices.MinFunc(c.Rules().Rules, func(a, b rules.Rule) int { return cmp.Compare(a.Window, b.Window) })
	window, whose := shortest.Window, "the window of the rule "+shortest.Name
	if window == c.ThrottleWindow {
		whose = "THROTTLE_WINDOW"
	}

	takeover := c.OwnershipExpiry + c.BalanceInterval
	w.warnIf(
		c.CheckpointStore != StoreMemory && takeover > window,
		"OWNERSHIP_EXPIRY",
		"and BALANCE_INTERVAL add up to %s, longer than %s (%s): while the partitions of a dead replica are taken over, "+
			"alerts may be that late",
		humanize.Plain(takeover),
		whose,
		humanize.Plain(window),
	)

	w.warnIf(
		c.DrainTimeout+shutdownMargin >= usualGrace,
		"DRAIN_TIMEOUT",
		"is %s, close to or above the usual grace period of %s: allow the container at least %s, or it is killed before "+
			"it has finished",
		humanize.Plain(c.DrainTimeout),
		humanize.Plain(usualGrace),
		humanize.Plain(c.DrainTimeout+2*shutdownMargin),
	)
	w.warnIf(
		c.DrainTimeout < c.NotifyTimeout,
		"DRAIN_TIMEOUT",
		"is %s, shorter than NOTIFY_TIMEOUT (%s): a stop may interrupt a delivery attempt, and its alert is sent again",
		humanize.Plain(c.DrainTimeout),
		humanize.Plain(c.NotifyTimeout),
	)

	w.warnIf(
		c.NotifyGiveUp >= defaultRetention,
		"NOTIFY_GIVE_UP",
		"is %s: make sure that the hub retains events longer (a new IoT Hub retains them for 1 day), or alerts that wait "+
			"for a receiver may be lost",
		humanize.Plain(c.NotifyGiveUp),
	)
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

// platforms are those that could run several of this process, by a variable that they set.
var platforms = map[string]string{
	"CONTAINER_APP_NAME":      "Container Apps",
	"KUBERNETES_SERVICE_HOST": "Kubernetes",
}
