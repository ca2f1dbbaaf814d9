package devhub

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/lab/devhub/frames"
	"alertworker/internal/telemetry/amqpvalue"
)

// Nodes that answer requests.
const (
	nodeCBS        = "$cbs"
	nodeManagement = "$management"
)

func undecodable(err error) *frames.Error {
	return problem(condDecode, "The message cannot be decoded: %v", err)
}

// formatBatch is the message format of a batch: each of its data sections is an
// encoded message.
const formatBatch = 0x80013700

// ingest adds a message or a batch from a client to p or, if that is nil, to the
// partition that its key decides, or the next one in turn.
func (h *Hub) ingest(p *partition, format uint32, message []byte) *frames.Error {
	m, err := parse(message)
	if err != nil {
		return undecodable(err)
	}

	batch := []*sent{m}

	if format == formatBatch {
		batch = batch[:0]
		for _, b := range m.data {
			e, err := parse(b)
			if err != nil {
				return undecodable(err)
			}

			batch = append(batch, e)
		}
	}

	switch {
	case p != nil:
	case m.keyed:
		p = h.byKey(m.key)
	default:
		p = h.next()
	}

	for _, m := range batch {
		_, err := p.append(time.Time{}, func(pub Published) ([]byte, error) { return m.encode(pub), nil })
		if err != nil {
			return undecodable(err)
		}
	}

	return nil
}

// A request is what a client asks a node.
type request struct {
	properties map[string]string // of its application, as far as they are text
	value      string
}

// An operation answers a request with a status, its description and a body. A status of 0 is no answer.
type operation func(request) (status int32, description string, body any)

// rpc makes an operation of what comes on a link. It answers on the link that the request names or, as Python's
// client means it, on that of the same session which is for the same node.
func (c *conn) rpc(requests *link, op operation) func(uint32, []byte) *frames.Error {
	return func(_ uint32, b []byte) *frames.Error {
		m, err := parse(b)
		if err != nil {
			return undecodable(err)
		}

		var properties [5]amqpvalue.Value // from the id to where the answer goes
		if !m.properties.Fields(properties[:]) || properties[0].IsNull() {
			return notAllowed("The request has no properties, such as its id.")
		}

		value, _ := m.value.Text()
		status, description, body := op(request{m.texts(), string(value)})
		if status == 0 {
			return nil
		}

		answer, err := (&amqp.Message{
			ApplicationProperties: map[string]any{
				"status-code":        status,
				"status-description": description,
			},
			Value: body,
		}).MarshalBinary()
		if err != nil {
			return undecodable(err)
		}

		// The answer has the request's id as its correlation id, which is the sixth of the properties.
		correlation := []byte{amqpvalue.Described, amqpvalue.SmallUlong, sectionProperties, amqpvalue.List32}
		correlation = binary.BigEndian.AppendUint32(correlation, uint32(4+5+len(properties[0])))
		correlation = binary.BigEndian.AppendUint32(correlation, 6)
		correlation = append(correlation, bytes.Repeat([]byte{amqpvalue.Null}, 5)...)
		answer = slices.Concat(correlation, properties[0], answer)

		return c.reply(requests, properties[4], answer)
	}
}

// putToken is the operation of $cbs.
func (c *conn) putToken(req request) (int32, string, any) {
	if r, ok := c.hub.faults.refuse(nodeCBS); ok {
		return r.status, "refused on demand", nil
	}

	audience, token := req.properties["name"], req.value
	if req.properties["operation"] != "put-token" || audience == "" || token == "" {
		return 400, "put-token needs a name and a token", nil
	}

	if err := c.hub.checkToken(token); err != nil {
		return 401, "InvalidSignature: " + err.Error(), nil
	}

	if len(c.claims) == maxClaims {
		return 403, "too many claims on one connection", nil
	}

	c.expireClaims()
	c.claims[pathOf(audience)] = struct{}{}

	return 202, "Accepted", nil
}

// expireClaims forgets the claims that have expired since.
func (c *conn) expireClaims() {
	if n := c.hub.faults.expiries.Load(); n != c.expiries {
		c.expiries = n
		clear(c.claims)
	}
}

// manage is the operation of $management. A request carries its own token, or relies on any claim.
func (c *conn) manage(req request, wantsGeo bool) (int32, string, any) {
	if r, ok := c.hub.faults.refuse(nodeManagement); ok {
		return r.status, "refused on demand", nil
	}

	if c.hub.faults.limitManagement() {
		return 503, "The request was terminated because the entity is being throttled. Error code: 50002. " +
			"Please wait 4 seconds and try again.", nil
	}

	c.expireClaims()
	token := req.properties["security_token"]
	if token == "" && !c.trusted && len(c.claims) == 0 {
		return 401, "Unauthorized access. Put a token to $cbs, or give a security_token.", nil
	}

	if err := c.hub.checkToken(token); err != nil {
		return 401, "InvalidSignature: " + err.Error(), nil
	}

	return c.hub.properties(req.properties, wantsGeo)
}

// properties returns those of the hub or of a partition, as the request asks.
func (h *Hub) properties(p map[string]string, wantsGeo bool) (int32, string, any) {
	if p["operation"] != "READ" || !strings.EqualFold(p["name"], h.config.Hub) {
		return 404, fmt.Sprintf("The messaging entity %q could not be found.", p["name"]), nil
	}

	switch p["type"] {
	case "com.microsoft:eventhub":
		factor := int32(1)
		if h.config.GeoReplicated {
			factor = 2
		}

		ids := make([]string, len(h.partitions))
		for i, p := range h.partitions {
			ids[i] = p.id
		}

		return 200, "OK", map[string]any{
			"name":                  h.config.Hub,
			"type":                  "com.microsoft:eventhub",
			"partition_count":       int32(len(ids)),
			"partition_ids":         ids,
			"created_at":            h.created,
			"georeplication_factor": factor,
		}

	case "com.microsoft:partition":
		partition := h.byID(p["partition"])
		if partition == nil {
			return 404, fmt.Sprintf("The partition %q could not be found.", p["partition"]), nil
		}

		state := partition.state(wantsGeo)
		state["name"] = h.config.Hub
		state["type"] = "com.microsoft:partition"

		return 200, "OK", state
	}

	return 400, "the type is neither com.microsoft:eventhub nor com.microsoft:partition", nil
}

// signIn checks what a client signs in with: the name of the key and the key, or, as
// to an IoT Hub, a user and a token signed with the key.
func (h *Hub) signIn(user, password string) bool {
	name, _, isToken := strings.Cut(user, "@sas.root.")
	if name != h.config.KeyName {
		return false
	}

	if !isToken {
		return password == h.config.Key
	}

	key, _ := base64.StdEncoding.DecodeString(h.config.Key) // as an IoT Hub has it

	return checkSAS(password, name, key) == nil
}

const sasPrefix = "SharedAccessSignature "

// checkToken checks a shared access signature. Other tokens are taken unchecked.
func (h *Hub) checkToken(token string) error {
	if !strings.HasPrefix(token, sasPrefix) {
		return nil
	}
	return checkSAS(token, h.config.KeyName, []byte(h.config.Key))
}

// checkSAS checks the signature and the expiry of a shared access signature.
func checkSAS(token, keyName string, key []byte) error {
	token, ok := strings.CutPrefix(token, sasPrefix)
	if !ok {
		return errors.New("not a shared access signature")
	}

	part := map[string]string{}
	for p := range strings.SplitSeq(token, "&") {
		name, value, _ := strings.Cut(p, "=")
		part[name] = value
	}

	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(part["sr"] + "\n" + part["se"]))
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	signature, err := url.QueryUnescape(part["sig"])
	isSigned := err == nil && hmac.Equal([]byte(signature), []byte(want))
	if !isSigned || part["skn"] != keyName {
		return errors.New("the token has another key's name or signature")
	}

	expiry, err := strconv.ParseInt(part["se"], 10, 64)
	if err != nil || time.Now().Unix() > expiry {
		return errors.New("the token has expired")
	}

	return nil
}
