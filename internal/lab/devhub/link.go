package devhub

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/lab/devhub/frames"
	"alertworker/internal/telemetry/amqpvalue"
)

const (
	linkCredit = 100      // granted to who sends to the hub
	maxMessage = 1 << 20  // that the hub takes
	maxAdded   = 64 << 10 // to it by the hub
	maxReplies = 1000     // waiting on one link
	lookAhead  = 64       // events that a link takes from the log at once

	// Channels and handles of the hub's own are not those of the client.
	channelOffset = 7
	handleOffset  = 3

	creditEvery = 10 * time.Second // a link that has events and no credit asks for some
)

// A session is one of a connection's. conn.mu guards it.
type session struct {
	channel  uint16           // the hub's
	ended    bool             // by the hub; the client has yet to answer
	choked   bool             // see Choke
	links    map[uint32]*link // by the client's handle
	nextIn   uint32           // transfer id
	inWindow uint32           // transfers that the client may still send
	nextOut  uint32           // transfer id
	window   uint32           // transfers that the hub may still send
	delivery uint32           // id of the hub's next delivery
}

// A link carries messages one way. conn.mu guards what is not settled when it is
// created.
type link struct {
	conn     *conn
	session  *session
	handle   uint32 // the hub's
	node     string // $cbs or $management, if it is for that
	attached bool
	detached bool          // by the hub; the client has yet to answer
	cause    *frames.Error // of detached
	count    uint32        // deliveries so far
	credit   uint32        // deliveries to come

	// Of a link on which the hub sends: events of a partition, or replies.
	partition *partition
	selector  string
	metrics   bool // each event is to tell of the end of the partition
	geo       bool // the client wants the offsets of a geo-replicated namespace
	group     string
	receiver  string // its name, for messages
	epoch     *int64
	next      int64    // sequence number
	ahead     [][]byte // messages taken from the log
	buffer    [lookAhead][]byte
	target    string   // where the client wants its replies
	replies   [][]byte // encoded
	drain     bool
	muted     bool
	asked     time.Time // for credit
	id        uint32    // of the current delivery
	rest      []byte    // what of it is still to be sent

	// Of a link on which the client sends.
	receive  func(format uint32, message []byte) *frames.Error
	incoming *frames.Transfer // the first of a delivery that has begun and not ended
	partial  []byte           // what came of it
}

func (c *conn) begin(channel uint16, b *frames.Begin) *frames.Error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if channel > maxChannel || c.sessions[channel] != nil {
		return notAllowed("A session cannot begin on channel %d.", channel)
	}

	s := &session{
		channel:  channel + channelOffset,
		links:    map[uint32]*link{},
		nextIn:   b.NextOutgoingID,
		inWindow: window,
		nextOut:  1,
		window:   b.IncomingWindow,
	}

	c.sessions[channel] = s
	c.send(s, &frames.Begin{
		RemoteChannel:  &channel,
		NextOutgoingID: s.nextOut,
		IncomingWindow: window,
		OutgoingWindow: s.window,
		HandleMax:      maxHandle,
	})

	return nil
}

// forgetLinks forgets the links of a session that ends. The caller holds c.mu.
func (c *conn) forgetLinks(s *session) {
	for _, l := range s.links {
		l.detached = true
		c.forget(l)
	}
	clear(s.links)
}

// unattached ends a session because of a frame on a handle that has no link, as of a link that the client has detached.
func (c *conn) unattached(s *session, handle uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()

	s.ended = true
	c.forgetLinks(s)
	c.send(s, &frames.End{Error: problem(
		"amqp:session:unattached-handle",
		"The link handle '%d' cannot be found in session 'session%d'.",
		handle,
		s.channel,
	)})
}

// forget stops sending on a link. The caller holds c.mu.
func (c *conn) forget(l *link) {
	if l.partition != nil {
		l.partition.leave(l)
	}

	c.sending = slices.DeleteFunc(c.sending, func(o *link) bool { return o == l })
	l.rest = nil
	l.ahead = nil
	l.replies = nil
	l.buffer = [lookAhead][]byte{}
}

// attach answers the client's wish for a link.
func (c *conn) attach(s *session, a *frames.Attach) *frames.Error {
	if a.Handle > maxHandle || s.links[a.Handle] != nil {
		return notAllowed("A link cannot be attached with the handle %d.", a.Handle)
	}

	l := &link{conn: c, session: s, handle: a.Handle + handleOffset}
	var refused *frames.Error
	if a.Role == frames.Receiver {
		refused = c.attachSending(l, a)
	} else {
		refused = c.attachReceiving(l, a)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	s.links[a.Handle] = l
	if l.detached { // stolen before it was there
		refused = l.cause
	}

	answer := &frames.Attach{Name: a.Name, Handle: l.handle, Role: !a.Role}
	if refused != nil { // no terminus says so, and why follows at once
		l.detached = true
		c.forget(l)
		c.send(s, answer)
		c.send(s, &frames.Detach{Handle: l.handle, Closed: true, Error: refused})

		return nil
	}

	l.attached = true
	answer.Source, answer.Target = a.Source, a.Target
	answer.MaxMessageSize = maxMessage
	switch {
	case l.partition != nil: // settled, whatever was asked for
		answer.SenderSettleMode = new(frames.SenderSettled)
		answer.MaxMessageSize += maxAdded
	default:
		answer.SenderSettleMode, answer.ReceiverSettleMode = a.SenderSettleMode, a.ReceiverSettleMode
	}
	if answer.Source != nil {
		answer.Source.Filter = nil // but that which is in place
		if l.selector != "" {
			answer.Source.Filter = frames.Map{selectorFilter: frames.Described{Descriptor: selectorDescriptor, Value: l.selector}}
		}
	}

	c.send(s, answer)

	if a.Role == frames.Receiver {
		c.sending = append(c.sending, l)
	} else {
		l.credit = linkCredit
		c.sendFlow(l, false)
	}

	return nil
}

const (
	selectorFilter     frames.Symbol = "apache.org:selector-filter:string"
	selectorDescriptor uint64        = 0x0000468C00000004
	metricsCapability  frames.Symbol = "com.microsoft:enable-receiver-runtime-metric"
	geoCapability      frames.Symbol = "com.microsoft:georeplication"
)

// attachSending prepares a link on which the hub sends.
func (c *conn) attachSending(l *link, a *frames.Attach) *frames.Error {
	if a.Source == nil {
		return notAllowed("The link has no source.")
	}

	l.geo = a.Wants(geoCapability)
	l.target = a.Name // as the JavaScript client means it, which gives no address
	if a.Target != nil && a.Target.Address != "" {
		l.target = a.Target.Address
	}

	path, refused := c.authorize(a.Source.Address)
	if refused != nil {
		return refused
	}

	if isNode(path) {
		l.node = path
		return nil
	}

	part := strings.Split(path, "/") // HUB/consumergroups/GROUP/partitions/N
	isOfHub := part[0] == strings.ToLower(c.hub.config.Hub)
	if !isOfHub || len(part) != 5 || part[1] != "consumergroups" || part[3] != "partitions" {
		return notFound(a.Source.Address)
	}

	p := c.hub.byID(part[4])
	if p == nil {
		return c.noPartition(part[4])
	}

	l.group = part[2]
	l.receiver, _ = a.Properties["com.microsoft:receiver-name"].(string)
	if epoch, ok := a.Properties["com.microsoft:epoch"].(int64); ok {
		l.epoch = &epoch
	}

	l.metrics = a.Wants(metricsCapability)
	var readable bool
	if filter, ok := a.Source.Filter[selectorFilter]; ok {
		if l.selector, readable = filter.(string); !readable {
			return problem(condArgument, "The filter %q is no text.", filter)
		}
	}

	if refused = c.hub.faults.refuseLink(p.id, l.receiver, l.selector); refused != nil {
		return refused
	}

	if l.next, refused = p.start(l.selector, l.geo); refused != nil {
		return refused
	}

	l.partition = p
	victims, refused := p.admit(l)
	for _, v := range victims {
		v.conn.detach(v, problem(
			condStolen,
			"New receiver '%s' with higher epoch of '%d' is created hence current receiver '%s' is getting disconnected. If "+
				"you are recreating the receiver, make sure a higher epoch is used.",
			l.receiver,
			*l.epoch,
			v.receiver,
		))
	}

	return refused
}

// attachReceiving prepares a link on which the client sends.
func (c *conn) attachReceiving(l *link, a *frames.Attach) *frames.Error {
	if a.Target == nil {
		return notAllowed("The link has no target.")
	}

	path, refused := c.authorize(a.Target.Address)
	if refused != nil {
		return refused
	}

	part := strings.Split(path, "/")
	hub := part[0] == strings.ToLower(c.hub.config.Hub)
	switch {
	case path == nodeCBS:
		l.node = path
		l.receive = c.rpc(l, c.putToken)

	case path == nodeManagement:
		l.node = path
		l.geo = a.Wants(geoCapability)
		l.receive = c.rpc(l, func(req request) (int32, string, any) { return c.manage(req, l.geo) })

	case hub && len(part) == 1:
		l.receive = func(format uint32, message []byte) *frames.Error {
			return c.hub.ingest(nil, format, message)
		}

	case hub && len(part) == 3 && part[1] == "partitions":
		p := c.hub.byID(part[2])
		if p == nil {
			return c.noPartition(part[2])
		}

		l.receive = func(format uint32, message []byte) *frames.Error {
			return c.hub.ingest(p, format, message)
		}

	default:
		return notFound(a.Target.Address)
	}

	if _, isChoked := c.hub.faults.refuse(choked + path); isChoked {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.session.choked, l.session.inWindow = true, 0
	}

	return nil
}

// authorize returns the path of an address, in lower case, or why the client may
// not use it. The requests to $management are judged one by one.
func (c *conn) authorize(address string) (path string, refused *frames.Error) {
	path = pathOf(address)
	redirects := c.hub.config.RedirectTo != "" && strings.HasPrefix(path, "messages/events")
	switch {
	case redirects && c.trusted:
		return "", c.redirect()
	case redirects:
		return "", unauthorized(address)
	case c.trusted, isNode(path), c.hasClaim(path):
		return path, nil
	}

	return "", unauthorized(address)
}

// isNode reports whether a path is that of a node with which clients exchange requests and answers.
func isNode(path string) bool { return path == nodeCBS || path == nodeManagement }

// hasClaim reports whether the client has put a token for the path, or for what it is in.
func (c *conn) hasClaim(path string) bool {
	c.expireClaims()

	for claim := range c.claims {
		if strings.HasPrefix(path+"/", claim+"/") {
			return true
		}
	}

	return false
}

// pathOf returns the path of an address or of a URL, in lower case.
func pathOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Path
	}
	return strings.ToLower(strings.Trim(address, "/"))
}

func unauthorized(address string) *frames.Error {
	return problem(
		"amqp:unauthorized-access",
		"Unauthorized access. 'Listen' or 'Send' claim(s) are required for %q: put a token to $cbs first.",
		address,
	)
}

func notFound(address string) *frames.Error {
	return problem(condNotFound, "The messaging entity %q could not be found.", address)
}

func (c *conn) noPartition(id string) *frames.Error {
	return problem(
		"com.microsoft:argument-out-of-range",
		"The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and %d, "+
			"not %q.",
		len(c.hub.partitions)-1,
		id,
	)
}

// redirect says where the Event Hub of this IoT Hub is.
func (c *conn) redirect() *frames.Error {
	u := c.hub.redirect
	port, _ := strconv.Atoi(cmp.Or(u.Port(), "5671")) // a URL was read with it

	return &frames.Error{
		Condition:   "amqp:link:redirect",
		Description: "The link is to be attached elsewhere.",
		Info: frames.Map{
			"hostname":     u.Hostname(),
			"network-host": u.Hostname(),
			"port":         int32(port),
			"address":      u.String(),
		},
	}
}

// detach closes a link from the hub's side.
func (c *conn) detach(l *link, cause *frames.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if l.detached {
		return
	}

	l.detached, l.cause = true, cause
	c.forget(l)
	if l.attached {
		c.send(l.session, &frames.Detach{Handle: l.handle, Closed: true, Error: cause})
	}
}

// detached is what the client's detach does.
func (c *conn) detached(s *session, d *frames.Detach) {
	l := s.links[d.Handle]
	if l == nil {
		c.unattached(s, d.Handle)
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	delete(s.links, d.Handle)
	if !l.detached {
		l.detached = true
		c.forget(l)
		c.send(s, &frames.Detach{Handle: l.handle, Closed: d.Closed})
	}
}

// flow takes the client's windows and credit.
func (c *conn) flow(s *session, f *frames.Flow) {
	if f.Handle != nil && s.links[*f.Handle] == nil {
		c.unattached(s, *f.Handle)
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	seen := uint32(0)
	if f.NextIncomingID != nil {
		seen = *f.NextIncomingID
	}

	s.window = left(seen+f.IncomingWindow, s.nextOut)

	if f.Handle == nil {
		if f.Echo {
			c.send(s, s.flow())
		}

		c.notify()

		return
	}

	l := s.links[*f.Handle]
	if l.detached {
		return
	}
	if l.receive == nil {
		l.credit = left(f.DeliveryCount+f.LinkCredit, l.count)
		l.drain = l.drain || f.Drain // the answer to an echo may follow at once
	}
	if f.Echo {
		c.sendFlow(l, false)
	}

	c.notify()
}

// left returns limit - used in serial number arithmetic, 0 if it is negative.
func left(limit, used uint32) uint32 {
	return uint32(max(0, int32(limit-used)))
}

func (s *session) flow() *frames.Flow {
	nextIn := s.nextIn
	return &frames.Flow{
		NextIncomingID: &nextIn,
		IncomingWindow: s.inWindow,
		NextOutgoingID: s.nextOut,
		OutgoingWindow: s.window,
	}
}

// sendFlow tells the client the state of a link, and asks for its own with an echo. The caller holds c.mu.
func (c *conn) sendFlow(l *link, echo bool) {
	f := l.session.flow()
	f.Echo = echo
	f.Handle = &l.handle
	f.DeliveryCount = l.count
	f.LinkCredit = l.credit
	f.Drain = l.drain
	c.send(l.session, f)
}

// fill appends what the link may send now, until b has about limit bytes. The
// caller holds conn.mu.
func (l *link) fill(b []byte, limit int) []byte {
	s, size := l.session, l.conn.peerMax-frames.DeliveryOverhead
	for len(b) < limit && s.window > 0 {
		isFirst := len(l.rest) == 0
		if isFirst {
			if l.rest = l.take(); l.rest == nil {
				break
			}

			l.credit--
			l.count++
			l.id = s.delivery
			s.delivery++
		}

		part := l.rest
		if len(part) > size {
			part = part[:size]
		}

		l.rest = l.rest[len(part):]
		b = frames.AppendDelivery(b, s.channel, frames.Delivery{
			Handle:  l.handle,
			ID:      l.id,
			First:   isFirst,
			More:    len(l.rest) > 0,
			Settled: l.partition != nil,
		}, part)
		s.window--
		s.nextOut++
	}

	return b
}

// take returns the next message if there is one and credit for it.
func (l *link) take() (message []byte) {
	switch {
	case l.muted:

	case l.credit == 0:
		if !l.drain {
			l.askForCredit()
		}

	case l.partition == nil:
		if len(l.replies) > 0 {
			message, l.replies = l.replies[0], l.replies[1:]
			return message
		}

	default:
		if len(l.ahead) == 0 {
			var n int
			n, l.next = l.partition.read(l.next, l.buffer[:min(lookAhead, l.credit)])
			l.ahead = l.buffer[:n]
		}

		if len(l.ahead) > 0 {
			message, l.ahead = l.ahead[0], l.ahead[1:]
			if l.metrics {
				message = annotate(message, l.partition.state(l.geo))
			}

			return message
		}
	}

	if l.drain { // what credit is left is used up
		l.count += l.credit
		l.credit = 0
		l.conn.sendFlow(l, false)
		l.drain = false
	}

	return nil
}

// askForCredit asks the client for credit if there are events for it.
func (l *link) askForCredit() {
	isDue := time.Since(l.asked) >= creditEvery
	if isDue && l.partition != nil && (len(l.ahead) > 0 || l.partition.has(l.next)) {
		l.asked = time.Now()
		l.conn.sendFlow(l, true)
	}
}

// transfer takes a message, or a part of one, from the client.
func (c *conn) transfer(s *session, t *frames.Transfer, payload []byte) *frames.Error {
	l := s.links[t.Handle]
	if l == nil {
		c.unattached(s, t.Handle)
		return nil
	}

	c.mu.Lock()
	detached := l.detached
	c.mu.Unlock()
	if l.receive == nil && !detached {
		return notAllowed("The handle %d is not attached for sending.", t.Handle)
	}

	if l.incoming == nil {
		l.incoming = t
	}

	first := l.incoming
	l.partial = append(l.partial, payload...)
	ended, complete := true, false

	switch {
	case detached || t.Aborted:

	case len(l.partial) > maxMessage:
		c.detach(
			l,
			problem("amqp:link:message-size-exceeded", "The message is larger than the limit of %d bytes.", maxMessage),
		)

	case l.credit == 0:
		c.detach(l, problem("amqp:link:transfer-limit-exceeded", "The link has no credit left."))

	case t.More:
		ended = false

	default:
		complete = true
	}

	var refused *frames.Error
	if complete {
		refused = l.receive(first.MessageFormat, l.partial)
	}

	if ended {
		l.incoming, l.partial = nil, nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	s.nextIn++
	s.inWindow--

	if complete {
		l.count++
		l.credit--

		if !first.Settled && !t.Settled && first.DeliveryID != nil {
			id := *first.DeliveryID
			c.send(s, &frames.Disposition{Role: frames.Receiver, First: id, Last: id, Settled: true, Error: refused})
		}
	}

	if s.inWindow < window/2 || l.credit < linkCredit/2 {
		s.inWindow = window

		if l.detached {
			c.send(s, s.flow())
			return nil
		}

		l.credit = linkCredit
		c.sendFlow(l, false)
	}

	return nil
}

// reply queues the answer to what came on requests for the client's link with the target replyTo, if there is one.
func (c *conn) reply(requests *link, replyTo amqpvalue.Value, message []byte) *frames.Error {
	target, isNamed := replyTo.Text()
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, l := range c.sending {
		if l.partition != nil {
			continue
		}

		wanted := l.session == requests.session && l.node == requests.node
		if isNamed {
			wanted = l.target == string(target)
		}

		if wanted {
			if len(l.replies) == maxReplies {
				return problem(condLimit, "Too many replies are waiting to be received.")
			}

			l.replies = append(l.replies, message)
			c.notify()

			return nil
		}
	}

	if !isNamed {
		return problem(condNotFound, "No link of the session receives replies of %s.", requests.node)
	}

	return problem(condNotFound, "No link receives replies to %q.", target)
}
