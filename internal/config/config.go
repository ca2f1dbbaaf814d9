// Package config reads the configuration from the environment: one field per variable,
// with its default, its validation and its help text. All errors are reported together, and no
// secret is ever shown.
package config

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kelseyhightower/envconfig"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify/receivers"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

// A Config is the configuration. Every field is one variable, in the order in which
// help, errors and documentation list them:
//
//	envconfig  the variable
//	default    its value when unset or empty
//	fallback   a description of the default where that is not a constant
//	empty      "means" where an empty value differs from an unset one
//	group      the heading in help, on the first variable of a group
//
// What it is for is in descriptions.
type Config struct {
	EventHubConnectionString Secret          `envconfig:"EVENTHUB_CONNECTION_STRING" group:"Event hub"`
	EventHubName             string          `envconfig:"EVENTHUB_NAME" fallback:"EntityPath"`
	EventHubNamespace        string          `envconfig:"EVENTHUB_NAMESPACE"`
	IoTHubConnectionString   Secret          `envconfig:"IOTHUB_CONNECTION_STRING"`
	EventHubConsumerGroup    string          `envconfig:"EVENTHUB_CONSUMER_GROUP" default:"$Default"`
	EventHubStart            eventhubs.Start `envconfig:"EVENTHUB_START" default:"latest"`
	EventHubPrefetch         int             `envconfig:"EVENTHUB_PREFETCH" default:"1000"`
	EventHubTransport        Choice          `envconfig:"EVENTHUB_TRANSPORT" default:"amqp"`

	TemperatureThreshold float64   `envconfig:"TEMPERATURE_THRESHOLD" group:"Readings"`
	TemperatureField     string    `envconfig:"TEMPERATURE_FIELD" default:"temperature,temp"`
	TimeProperty         string    `envconfig:"TIME_PROPERTY"`
	RulesText            RulesText `envconfig:"RULES"`
	RulesFile            RulesFile `envconfig:"RULES_FILE"`

	ThrottleWindow time.Duration `envconfig:"THROTTLE_WINDOW" default:"60s" group:"Windows"`
	ThrottleStore  Choice        `envconfig:"THROTTLE_STORE" default:"blob"`
	ThrottleScope  string        `envconfig:"THROTTLE_SCOPE" fallback:"namespace/hub/group, or IoT Hub/group"`

	StorageConnectionString Secret        `envconfig:"STORAGE_CONNECTION_STRING" group:"Azure Storage"`
	StorageAccountURL       string        `envconfig:"STORAGE_ACCOUNT_URL"`
	CheckpointStore         Choice        `envconfig:"CHECKPOINT_STORE" default:"blob"`
	CheckpointContainer     string        `envconfig:"CHECKPOINT_CONTAINER" default:"alertworker-checkpoints"`
	ThrottleContainer       string        `envconfig:"THROTTLE_CONTAINER" default:"alertworker-throttle"`
	DeadLetterContainer     string        `envconfig:"DEAD_LETTER_CONTAINER" default:"alertworker-deadletters"`
	CheckpointInterval      time.Duration `envconfig:"CHECKPOINT_INTERVAL" default:"5s"`

	CosmosConnectionString Secret `envconfig:"COSMOS_CONNECTION_STRING" group:"Cosmos DB, for THROTTLE_STORE=cosmos"`
	CosmosEndpoint         string `envconfig:"COSMOS_ENDPOINT"`
	CosmosDatabase         string `envconfig:"COSMOS_DATABASE" default:"alertworker"`
	CosmosContainer        string `envconfig:"COSMOS_CONTAINER" default:"leases"`

	NotifyURLs          URLs          `envconfig:"NOTIFY_URLS" group:"Alerts"`
	NotifyWebhookSecret Secret        `envconfig:"NOTIFY_WEBHOOK_SECRET"`
	PublicURL           string        `envconfig:"PUBLIC_URL"`
	TimeZone            string        `envconfig:"TIME_ZONE" default:"UTC"`
	NotifyResolved      bool          `envconfig:"NOTIFY_RESOLVED" default:"false"`
	NotifyTimeout       time.Duration `envconfig:"NOTIFY_TIMEOUT" default:"10s"`
	NotifyConcurrency   int           `envconfig:"NOTIFY_CONCURRENCY" default:"64"`
	NotifyGiveUp        time.Duration `envconfig:"NOTIFY_GIVE_UP" default:"12h"`

	OwnershipExpiry time.Duration `envconfig:"OWNERSHIP_EXPIRY" default:"8s" group:"Replicas"`
	BalanceInterval time.Duration `envconfig:"BALANCE_INTERVAL" default:"3s"`
	DrainTimeout    time.Duration `envconfig:"DRAIN_TIMEOUT" default:"20s"`
	ReplicaName     string        `envconfig:"REPLICA_NAME" fallback:"host name"`

	LeaseRetention time.Duration `envconfig:"LEASE_RETENTION" default:"720h" group:"Duties of one replica for all"`
	HeartbeatURL   Secret        `envconfig:"HEARTBEAT_URL"`

	HTTPAddr        string `envconfig:"HTTP_ADDR" default:":8080" empty:"means" group:"HTTP and logging"`
	HTTPHosts       string `envconfig:"HTTP_HOSTS"`
	HTTPIngestToken Secret `envconfig:"HTTP_INGEST_TOKEN"`
	HTTPAdminToken  Secret `envconfig:"HTTP_ADMIN_TOKEN"`
	LogLevel        Choice `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat       Choice `envconfig:"LOG_FORMAT" default:"json"`
}

// The values of EVENTHUB_TRANSPORT and LOG_FORMAT.
const (
	TransportAMQP      = Choice(transport.AMQP)
	TransportWebSocket = Choice(transport.WebSocket)

	LogJSON    Choice = "json"
	LogConsole Choice = "console"
)

// HasStorage reports whether Azure Storage is configured.
func (c Config) HasStorage() bool {
	return c.StorageConnectionString.IsSet() || c.StorageAccountURL != ""
}

// StorageVariable returns the variable that says where Azure Storage is.
func (c Config) StorageVariable() string {
	if c.StorageConnectionString.IsSet() {
		return "STORAGE_CONNECTION_STRING"
	}
	return "STORAGE_ACCOUNT_URL"
}

// CosmosVariable returns the variable that says where Cosmos DB is.
func (c Config) CosmosVariable() string {
	if c.CosmosConnectionString.IsSet() {
		return "COSMOS_CONNECTION_STRING"
	}
	return "COSMOS_ENDPOINT"
}

// Keyless reports whether any service is used with an Azure identity instead of a key.
func (c Config) Keyless() bool {
	azure := c.EventHubNamespace != "" || c.StorageAccountURL != "" || c.CosmosKeyless()
	return azure || c.EventGridKeyless() || c.MailKeyless()
}

// CosmosKeyless reports whether Cosmos DB is used with an Azure identity instead of a key.
func (c Config) CosmosKeyless() bool {
	return c.ThrottleStore == StoreCosmos && c.CosmosEndpoint != ""
}

// EventGridKeyless reports whether a topic is used with an Azure identity instead of a key.
func (c Config) EventGridKeyless() bool {
	return slices.ContainsFunc(c.receivers(), receivers.Entry.NeedsEventGridToken)
}

// MailKeyless reports whether a mail server is used with an Azure identity instead of a password.
func (c Config) MailKeyless() bool {
	return slices.ContainsFunc(c.receivers(), receivers.Entry.NeedsMailToken)
}

// Hub returns where the events are. It is empty until IOTHUB_CONNECTION_STRING is
// resolved (WithHub).
func (c Config) Hub() HubAddress {
	if c.EventHubNamespace != "" {
		return HubAddress{Host: c.EventHubNamespace, Name: c.EventHubName}
	}

	address, err := parseEventHub(c.EventHubConnectionString.Reveal())
	if err != nil {
		return HubAddress{}
	}

	address.Name = cmp.Or(address.Name, c.EventHubName)

	return address
}

// WithHub returns c reading from the Event Hubs endpoint that its
// IOTHUB_CONNECTION_STRING resolved to.
func (c Config) WithHub(connectionString string) (Config, error) {
	address, err := parseEventHub(connectionString)
	if err == nil && address.Name == "" {
		err = errors.New("has no EntityPath")
	}

	if err != nil {
		return Config{}, fmt.Errorf("the Event Hubs endpoint of IOTHUB_CONNECTION_STRING %w", err)
	}

	c.EventHubConnectionString = NewSecret(connectionString)

	return c, nil
}

// IoTHub returns the IoT Hub's host name in lower case, empty if there is no
// IOTHUB_CONNECTION_STRING. It stays when the hub fails over; its endpoint does not.
func (c Config) IoTHub() string {
	host, _ := parseIoTHub(c.IoTHubConnectionString.Reveal())
	return strings.ToLower(host)
}

// Scope returns the scope within which replicas share windows: THROTTLE_SCOPE, or
// namespace/hub/group in lower case, because Azure ignores case; with
// IOTHUB_CONNECTION_STRING the IoT Hub's host/group, so that windows survive a
// fail-over of the hub to another namespace.
func (c Config) Scope() string {
	if c.ThrottleScope != "" {
		return c.ThrottleScope
	}
	if host := c.IoTHub(); host != "" {
		return host + "/" + strings.ToLower(c.EventHubConsumerGroup)
	}

	hub := c.Hub()
	return strings.ToLower(hub.Host + "/" + hub.Name + "/" + c.EventHubConsumerGroup)
}

// Zone returns the time zone of times that people read.
func (c Config) Zone() *time.Location {
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil { // which Load rejects
		return time.UTC
	}
	return zone
}

// Origin names where events come from in alert ids: the namespace's first
// label and the hub; with IOTHUB_CONNECTION_STRING the IoT Hub's first label,
// because its namespace and hub change in a fail-over.
func (c Config) Origin() string {
	if name, _, ok := strings.Cut(c.IoTHub(), "."); ok {
		return name
	}

	hub := c.Hub()
	namespace, _, _ := strings.Cut(hub.Host, ".")
	if c.EventHubNamespace == "" && strings.Trim(hub.Host, "0123456789.:") == "" {
		namespace = "local" // an emulator at an address
	}

	return strings.ToLower(namespace + "/" + hub.Name)
}

// MarshalLogObject writes every variable whose value is not the default, under its name, and the threshold if it is set: it has
// no default, and may be 0. Secrets show as "[redacted]".
func (c Config) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	usual := readVariables(func(string) (string, bool) { return "", false }, &configError{})
	for i, v := range Variables() {
		if text := c.shown(i); text != usual.shown(i) || slices.Contains(c.RulesFile.beside, v.Name) {
			enc.AddString(v.Name, text)
		}
	}

	return nil
}

// shown returns the variable at a position as it may be shown; empty if it is not set and has no default.
func (c Config) shown(position int) string {
	return fmt.Sprint(reflect.ValueOf(c).Field(position).Interface())
}

// A Choice is one of a few words, in any case.
type Choice string

// UnmarshalText takes a word in any case, and ignores spaces around it. It never fails: which words there are is
// checked later.
func (c *Choice) UnmarshalText(text []byte) error {
	*c = Choice(strings.ToLower(strings.TrimSpace(string(text))))
	return nil
}

// A configError lists all configuration errors, one line per variable. It never holds a
// secret.
type configError struct {
	problems []problem
}

type problem struct {
	variable string
	text     string // continues "VARIABLE …"
}

// ExitInvalid is the exit code for invalid settings: EX_CONFIG of sysexits.h. Go's runtime ends a process that panics, is
// out of memory, or gets SIGQUIT with 2.
const ExitInvalid = 78

// ExitCode is the exit code of the process.
func (e *configError) ExitCode() int { return ExitInvalid }

// Error lists the problems in the order of the variables, under a heading that counts them.
func (e *configError) Error() string {
	problems := slices.Clone(e.problems)
	slices.SortStableFunc(problems, func(a, b problem) int { return position(a.variable) - position(b.variable) })
	width := 0
	for _, p := range problems {
		width = max(width, len(p.variable))
	}

	var b strings.Builder
	if len(problems) == 1 {
		b.WriteString("one setting is missing or invalid:\n\n")
	} else {
		fmt.Fprintf(&b, "%d settings are missing or invalid:\n\n", len(problems))
	}

	for _, p := range problems {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, p.variable, p.text)
	}

	b.WriteString("\nTo try it without Azure: alertworker local\nFor all settings and their defaults: alertworker --help")

	return b.String()
}

// add records a problem of variable. Only the first of a variable is kept: later ones
// follow from it.
func (e *configError) add(variable, format string, args ...any) {
	if !e.has(variable) {
		e.problems = append(e.problems, problem{variable, fmt.Sprintf(format, args...)})
	}
}

// addIf is add if something is wrong.
func (e *configError) addIf(isWrong bool, variable, format string, args ...any) {
	if isWrong {
		e.add(variable, format, args...)
	}
}

// addError is add of an error that continues "VARIABLE …", if there is one.
func (e *configError) addError(variable string, err error) {
	e.addIf(err != nil, variable, "%v", err)
}

// has reports whether variable has a problem, from which others would follow.
func (e *configError) has(variable string) bool {
	return slices.ContainsFunc(e.problems, func(p problem) bool { return p.variable == variable })
}

// gone are settings that version 1.0 had, and what to do instead.
var gone = map[string]string{
	"DEAD_LETTER_MALFORMED":          "alertworker check and alertworker why DEVICE say what could not be decoded, and why",
	"NOTIFY_REPEAT":                  "write repeat: 4h, or never, in each rule of RULES or RULES_FILE",
	"QUIET_PROPERTY":                 "write mute: [{where: NAME=true}, {until: NAME}] beside the rules in RULES or RULES_FILE",
	"TEMPERATURE_CLEAR":              "write a rule in RULES or RULES_FILE, with clear: 75",
	"TEMPERATURE_FOR":                "write a rule in RULES or RULES_FILE, with for: 2m",
	"TEMPERATURE_THRESHOLD_PROPERTY": "write a rule in RULES or RULES_FILE, with above: maxTemp or 80",
}

// Load reads and validates the environment. Its error lists all configuration errors and
// has the exit code ExitInvalid. Warnings are returned with an error too: a misspelled name often
// explains it.
func Load() (Config, []Warning, error) {
	var e configError
	c := readVariables(os.LookupEnv, &e)
	c.expand()
	c.validate(&e)

	warnings := misspelled(os.Environ())
	if len(e.problems) > 0 {
		return Config{}, warnings, &e
	}

	return c, append(c.warnings(os.Environ()), warnings...), nil
}

// Reload returns used with the secrets that are there now: in their files, whatever they were when used was loaded. One
// that is invalid stays as it was, and so do all if they do not go with the other settings. The error, of one line, lists
// what is invalid.
func Reload(used Config) (Config, error) {
	var e configError
	next := used
	fields := reflect.ValueOf(&next).Elem()
	for i, v := range Variables() {
		if v.Secret {
			lookup(os.LookupEnv).read(fields.Type().Field(i), fields.Field(i), &e)
		}
	}

	next.expand()
	next.validate(&e)
	var lines []string
	for _, p := range e.problems {
		lines = append(lines, p.variable+" "+p.text)
		if !variableOf(p.variable).Secret {
			next = used
			continue
		}

		next = next.WithSecretOf(used, p.variable)
	}
	if len(lines) > 0 {
		return next, errors.New(strings.Join(lines, "; "))
	}

	return next, nil
}

// expand replaces shorthands by what they stand for.
func (c *Config) expand() {
	if strings.EqualFold(strings.TrimSuffix(c.StorageConnectionString.Reveal(), ";"), "UseDevelopmentStorage=true") {
		c.StorageConnectionString = NewSecret(developmentStorage)
	}

	if c.ReplicaName == "" {
		c.ReplicaName, _ = os.Hostname()
	}
}

// developmentStorage is what UseDevelopmentStorage=true stands for in every
// other SDK: the emulator's account, whose key is public.
const developmentStorage = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"

// A lookup returns a variable, and whether it is set, as os.LookupEnv does.
type lookup func(name string) (value string, set bool)

// get returns a variable; empty if it is not set.
func (env lookup) get(name string) string {
	value, _ := env(name)
	return value
}

// readVariables reads all variables.
func readVariables(env lookup, e *configError) (c Config) {
	values := reflect.ValueOf(&c).Elem()
	for i, v := range Variables() {
		env.read(values.Type().Field(i), values.Field(i), e)
		if strings.HasPrefix(v.Name, "TEMPERATURE_") && env.get(v.Name) != "" { // which rules in a file replace
			c.RulesFile.beside = append(c.RulesFile.beside, v.Name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(gone)) {
		e.addIf(env.get(name) != "", name, "is gone: %s", gone[name])
	}

	return c
}

// read reads the variable of field into value; a secret, from the file that NAME_FILE names if that is set.
func (env lookup) read(field reflect.StructField, value reflect.Value, e *configError) {
	name := field.Tag.Get("envconfig")
	text, set := env(name)

	if hidden, ok := value.Addr().Interface().(redactable); ok && env.get(name+"_FILE") != "" {
		if text != "" {
			e.add(name, "and %s_FILE are both set: remove one of them", name)
			return
		}

		content, err := ReadFile(env.get(name + "_FILE"))
		if err == nil {
			err = hidden.UnmarshalText(content)
		}

		e.addIf(err != nil, name, "cannot be read from %s_FILE: %v", name, err)

		return
	}

	if inQuotes.MatchString(text) {
		e.add(name, "is in quotes, which are part of the value: remove them (docker's --env-file keeps quotes)")
		return
	}

	emptyIsUnset := field.Tag.Get("empty") == "" // templates pass empty values for what is not set
	if text == "" && (!set || emptyIsUnset) {
		text = field.Tag.Get("default")
	}

	if err := process(field, value, text); err != nil {
		want := cmp.Or(expectations[field.Type], "another value") // envconfig's own message holds the value
		if field.Type == reflect.TypeFor[float64]() {
			want = likeNumber(text)
		}
		e.add(name, "is %s; must be %s", show(text), want)
	}
}

// inQuotes is a text in quotes.
var inQuotes = regexp.MustCompile(`(?s)^(".*"|'.*')$`)

// process reads text into one field: itself, or by envconfig as the default of a name that no variable can have.
// Asked for the whole struct, envconfig would stop at the first wrong value.
func process(field reflect.StructField, value reflect.Value, text string) error {
	if text == "" {
		return nil
	}
	if itself, ok := value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return itself.UnmarshalText([]byte(text))
	}

	field.Tag = reflect.StructTag(fmt.Sprintf(`envconfig:"=" default:%q`, text))
	one := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return err
	}

	value.Set(one.Elem().Field(0))

	return nil
}

// expectations describe the values that envconfig can read, by their type.
var expectations = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():   "a duration such as 30s, 5m or 1h30m",
	reflect.TypeFor[eventhubs.Start](): "earliest, latest or a time such as 2026-01-31T12:00:00Z",
	reflect.TypeFor[bool]():            "true or false",
	reflect.TypeFor[int]():             "a whole number",
}

// withComma is a number as some languages write it; with more digits it may be a secret.
var withComma = regexp.MustCompile(`^[+-]?\d{1,6},\d{1,6}$`)

// likeNumber says what a text must be that is no number.
func likeNumber(text string) string {
	if text = strings.TrimSpace(text); withComma.MatchString(text) {
		return "a number with a decimal point, " + strings.Replace(text, ",", ".", 1)
	}
	return "a number such as 80 or 80.5"
}

// secret returns what is secret in the variable at a position, entry by entry; nothing if it is not a secret.
func (c Config) secret(position int) []string {
	switch s := reflect.ValueOf(c).Field(position).Interface().(type) {
	case Secret:
		return []string{s.Reveal()}
	case URLs:
		return s.Reveal()
	}
	return nil
}

// ChangedSecrets returns the variables of secrets that differ between c and another configuration.
func (c Config) ChangedSecrets(before Config) (variables []string) {
	for i, v := range Variables() {
		if !slices.Equal(c.secret(i), before.secret(i)) {
			variables = append(variables, v.Name)
		}
	}

	return variables
}

// WithSecretOf returns c with a secret of another configuration.
func (c Config) WithSecretOf(before Config, variable string) Config {
	i := position(variable)
	reflect.ValueOf(&c).Elem().Field(i).Set(reflect.ValueOf(before).Field(i))
	return c
}

// SecretFiles returns the paths of the files that secrets come from, at present: those in variables that end in _FILE.
func SecretFiles() (paths []string) {
	for _, v := range Variables() {
		if path := os.Getenv(v.Name + "_FILE"); v.Secret && path != "" {
			paths = append(paths, path)
		}
	}

	return paths
}

// maxFile is far more than any connection string, list of URLs or list of rules takes.
const maxFile = 64 << 10

// ReadFile returns what is in the file at path. Its errors do not hold the path if that
// looks like a secret itself.
func ReadFile(path string) ([]byte, error) {
	// Opening a pipe would wait for its other end, so look before.
	info, err := os.Stat(path)
	var content []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("is not a regular file")
	case info.Size() > maxFile:
		err = errTooLarge
	default:
		content, err = os.ReadFile(path)
	}

	if err == nil {
		err = checkContent(content)
	}
	if err == nil {
		return content, nil
	}

	if named, ok := errors.AsType[*os.PathError](err); ok {
		err = fmt.Errorf("cannot be read: %w", named.Err)
	}

	return nil, fmt.Errorf("the file %s %w", show(path), err)
}

var errTooLarge = errors.New("is larger than 64 KiB")

// checkContent checks what was read of a file. The error continues "the file …".
func checkContent(content []byte) error {
	switch {
	case len(content) > maxFile:
		return errTooLarge
	case len(bytes.TrimSpace(content)) == 0:
		return errors.New("is empty")
	case !utf8.Valid(content):
		return errors.New("is not UTF-8 text")
	}

	return nil
}

// A Variable describes one variable of the environment.
type Variable struct {
	Name        string
	Default     string // "" if there is none; a description where it is not a constant
	Description string
	Group       string
	Required    bool // unless another is set
	Secret      bool // Name_FILE may name a file that holds it
}

// Variables returns all variables, in the order of Config's fields, from whose tags they are read. Nobody
// changes the slice.
var Variables = sync.OnceValue(func() []Variable {
	t := reflect.TypeFor[Config]()
	list := make([]Variable, t.NumField())
	group := ""
	for i := range list {
		field := t.Field(i)
		group = cmp.Or(field.Tag.Get("group"), group)
		name := field.Tag.Get("envconfig")
		list[i] = Variable{
			Name:        name,
			Default:     field.Tag.Get("default") + field.Tag.Get("fallback"),
			Description: descriptions[name],
			Group:       group,
			Required:    hints[name] != "",
			Secret:      reflect.PointerTo(field.Type).Implements(reflect.TypeFor[redactable]()),
		}
	}

	return list
})

// variableOf returns the variable of that name, the zero one if there is none.
func variableOf(name string) Variable {
	if i := position(name); i < len(Variables()) {
		return Variables()[i]
	}
	return Variable{}
}

// position returns the place of a variable among all; unknown ones are last.
func position(name string) int {
	list := Variables()
	if i := slices.IndexFunc(list, func(v Variable) bool { return v.Name == name }); i >= 0 {
		return i
	}
	return len(list)
}
