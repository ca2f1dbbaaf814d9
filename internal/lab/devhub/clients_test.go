package devhub_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/frames"
)

// Java's client asks $management with a token in each request and no claim before, Python's without saying where to
// reply to: the answers come on the links of the session that are for the same node.
func TestRequestsOfOtherClients(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	senders, receivers := map[string]*amqp.Sender{}, map[string]*amqp.Receiver{}
	for _, node := range []string{"$cbs", "$management"} {
		var err error
		if receivers[node], err = s.NewReceiver(t.Context(), node, nil); err != nil {
			t.Fatal(err)
		}
		if senders[node], err = s.NewSender(t.Context(), node, nil); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(node string, value any, properties map[string]any) int32 {
		t.Helper()
		m := &amqp.Message{
			Properties: &amqp.MessageProperties{MessageID: "id"}, ApplicationProperties: properties, Value: value,
		}
		if err := senders[node].Send(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
		answer, err := receivers[node].Receive(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := receivers[node].AcceptMessage(t.Context(), answer); err != nil { // it is not settled
			t.Fatal(err)
		}
		if answer.Properties.CorrelationID != "id" {
			t.Errorf("the answer is for %v", answer.Properties.CorrelationID)
		}
		return answer.ApplicationProperties["status-code"].(int32)
	}
	read := func(token string) int32 {
		t.Helper()
		properties := map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "devhub"}
		if token != "" {
			properties["security_token"] = token
		}
		return ask("$management", nil, properties)
	}
	soon, audience := time.Now().Add(time.Hour), "amqps://127.0.0.1/devhub"
	good, wrong := sas(audience, keyName, []byte("key"), soon), sas(audience, keyName, []byte("other"), soon)

	if got := []int32{read(""), read(wrong), read(good)}; !slices.Equal(got, []int32{401, 401, 200}) {
		t.Errorf("without a token, with a wrong one, with a good one: %v", got)
	}
	put := map[string]any{"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
	if status := ask("$cbs", good, put); status != 202 {
		t.Errorf("a claim: %d", status)
	}
	if got := []int32{read(""), read(wrong)}; !slices.Equal(got, []int32{200, 401}) {
		t.Errorf("after a claim, without a token and with a wrong one: %v", got)
	}
}

// A request that nobody listens for the answer of is refused.
func TestRequestWithoutLinkForReplies(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")})
	if _, err := s.NewReceiver(t.Context(), "$cbs", nil); err != nil {
		t.Fatal(err)
	}
	sender, err := s.NewSender(t.Context(), "$management", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "id"}, Value: "v"}
	if err := sender.Send(t.Context(), m, nil); !isCondition(err, amqp.ErrCondNotFound) {
		t.Errorf("got %v", err)
	}
}

// Where a client wants to begin is never guessed.
func TestUnreadableSelector(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")})
	for _, filter := range []any{int64(7), "offset = 7", "amqp.annotation.x-opt-offset > 'seven'", "x-other > '7'"} {
		_, err := s.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{
			amqp.NewLinkFilter("apache.org:selector-filter:string", 0x0000468C00000004, filter),
		}})
		if !isCondition(err, "com.microsoft:argument-error") {
			t.Errorf("%v: %v", filter, err)
		}
	}
}

// Messages of one key go where the SDKs' buffered producers send them.
func TestKeys(t *testing.T) {
	const partitions = 1000
	h := listen(t, devhub.Config{Partitions: partitions})
	for key, hash := range map[string]int{ // from azure-eventhub 5.15.1 for Python, generate_hash_code
		"7": -15263, "1": 3270, "ab": 2093, "oven-7": -16726, "pump-3": 18931, "TestKey": 11417, "alphabet": -23478,
		"12charslong!": 17759, "Contoso-device-0013": -14669, "aaaaaaaaaaaaaaaaaaaaaaaa": -13796,
		"a-rather-long-device-name.with:many_characters%26": -15337,
		"müller": 18661, // from @azure/event-hubs 6 for JavaScript, which hashes UTF-8
	} {
		want := strconv.Itoa(max(hash%partitions, -hash%partitions))
		if got := publish(t, h, devhub.Message{Device: key}).Partition; got != want {
			t.Errorf("%q went to %s, want %s", key, got, want)
		}
	}
}

// What Go's library cannot read, such as Java's char, reaches those who can.
func TestMessagesStayAsTheyCame(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	header := "\x00\x53\x70\xc0\x02\x01\x41"
	old := "\x00\x53\x72\xc1\x1e\x04\xa3\x0cx-opt-offset\xa1\x01x\xa3\x05x-own\x73\x00\x00\x00\x41"
	rest := "\x00\x53\x74\xc1\x09\x02\xa1\x01c\x73\x00\x00\x00\x41" + "\x00\x53\x75\xa0\x01a" + "\x00\x53\x75\xa0\x01b"
	c := dialRaw(t, h, "key", &frames.Open{ContainerID: "java"})
	c.write(t, &frames.Attach{Name: "s", Source: &frames.Source{}, Target: &frames.Target{Address: "devhub"}})
	c.read(t)
	c.read(t)
	c.transfer(t, &frames.Transfer{DeliveryID: ptr(uint32(0))}, []byte(header+old+rest))
	c.read(t)
	if p, err := consumer(t, h, noRetries).GetPartitionProperties(t.Context(), "0", nil); err != nil || p.IsEmpty {
		t.Fatalf("the message was not taken: %+v, %v", p, err)
	}

	reader := dialRaw(t, h, "key", &frames.Open{ContainerID: "reader"})
	reader.attachReceiver(t, address)
	f, err := frames.Read(reader.r, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := frames.Decode(f.Body)
	if err != nil {
		t.Fatal(err)
	}
	annotations, ok := bytes.CutPrefix(got, []byte(header))
	annotations, ends := bytes.CutSuffix(annotations, []byte(rest))
	if !ok || !ends || !bytes.Contains(annotations, []byte("\xa3\x05x-own\x73\x00\x00\x00\x41")) {
		t.Errorf("got %q", got)
	}
	clients := bytes.Contains(annotations, []byte("x-opt-offset\xa1\x01x"))
	hubs := bytes.Contains(annotations, []byte("x-opt-offset\xa1\x010"))
	if clients || !hubs {
		t.Errorf("the place is not the hub's: %q", annotations)
	}
}

// Only who asks for it hears with each event what the last one is.
func TestLastEnqueued(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1, Key: "key"})
	pubs := publishNumbers(t, h, 0, 3)
	s := session(t, h, amqp.ConnOptions{SASLType: amqp.SASLTypePlain(keyName, "key")})
	for _, asked := range []bool{false, true} {
		o := &amqp.ReceiverOptions{}
		if asked {
			o.DesiredCapabilities = []string{"com.microsoft:enable-receiver-runtime-metric"}
		}
		r, err := s.NewReceiver(t.Context(), address, o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Receive(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a := m.DeliveryAnnotations
		if !asked {
			if a != nil {
				t.Errorf("it was told %v", a)
			}
			continue
		}
		last := pubs[2]
		enqueued, _ := a["last_enqueued_time_utc"].(time.Time)
		retrieved, _ := a["runtime_info_retrieval_time_utc"].(time.Time)
		if a["last_enqueued_sequence_number"] != last.Sequence || a["last_enqueued_offset"] != last.Offset ||
			!enqueued.Equal(last.Enqueued) || retrieved.IsZero() || string(m.GetData()) != "0" {
			t.Errorf("it was told %v with %q, want %+v", a, m.GetData(), last)
		}
	}
}

// A hub that is asked too often answers some, and all who try again.
func TestLimitManagement(t *testing.T) {
	h := listen(t, devhub.Config{Partitions: 1})
	h.LimitManagement(1)
	c := consumer(t, h, azeventhubs.RetryOptions{MaxRetries: -1})
	var refused error
	for range 10 {
		if _, err := c.GetEventHubProperties(t.Context(), nil); err != nil {
			refused = err
		}
	}
	if refused == nil || !strings.Contains(refused.Error(), "throttled") {
		t.Errorf("of 10 questions none was refused: %v", refused)
	}
	h.LimitManagement(devhub.ManagementLimit)
	for range 10 {
		if _, err := c.GetEventHubProperties(t.Context(), nil); err != nil {
			t.Errorf("with the usual limit: %v", err)
		}
	}
}
