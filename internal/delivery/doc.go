// Package delivery brings notices to receivers: at the pace of each, through the gate, until each notice is settled or
// kept as a dead letter. A [Dispatcher] serves all owners of a replica, and knows nothing of them but [Owner].
//
// # Deliveries
//
// There is at most one delivery for each key: a receiver, a level, and a device or what devices share. Readings that
// come meanwhile join it, and it keeps the latest and a count. When the notice is settled, the latest reading is
// decided for all that joined: what settles a reading settles those before it. The delivery that follows for the latest
// reading, as after a dead letter, holds the owner's place there, not at the first.
//
// A caller who waits for the outcome of one reading, and sends it again if need be, needs no delivery: see [Direct].
//
// Each receiver has a schedule of its own, so that a slow one delays no other. It makes at most
// [Config.Concurrency] attempts at a time, each from its claim until its notice is recorded or
// the claim is given back, and writes as many dead letters. Whose turn it is says receiver.next alone: owners take turns,
// what matters more goes first, and nobody waits for ever. A waiting delivery has no goroutine.
//
// The lock of an [Outbox] is taken before that of a receiver. An owner is called without either. It may hold a
// lock of its own when it gives, alerts or withdraws.
//
// # The way of an alert
//
// Outbox.Alert begins a delivery, unless the reading joins one: queue.begin has it wait for its turn. After every change
// receiver.dispatch asks receiver.next whose turn it is, and starts a message. There message.deliver has each attempt claim
// its key, sends what could be claimed, and settles the claims. Then attempt.conclude says how the delivery goes on, and
// delivery.follow has it: it is settled, waits again, or is given up. What has joined one that ends, and is not settled with
// it, goes on in another: see delivery.replace.
//
// # Outages
//
// Whether a receiver is up is said by receiver.outage alone: it is, if it accepted something since it last did not. It is shown
// as down after three failures in a row, once it has refused everything for rate, which is a matter of its pace, or for
// good, or once something was due for 30 s while it accepted nothing. Only once two different alerts have failed do the
// others wait, while one alert at a time probes; an alert that failed before while others were taken does
// not count as one of the two. Pauses between probes begin at a second and double up to a minute. Alerts
// that have not failed probe first. The first notice that is taken, or refused for good, ends the outage.
//
// An alert becomes a dead letter if it is refused for good; when its reading is older than
// [Config.GiveUp], whatever it waits for and whether or not it was tried; after 8 failures between
// which the receiver answered others; or as the oldest of more than 65,536 of an owner that wait
// for a receiver: then the dead letter stands for all of its readings so far. An
// alert given up while it waited asks the gate first, because it may have been delivered before
// a restart. Dead letters are written before their events are settled; with 4,096 that
// are not written the owner is to pause: see [Outbox.Full].
//
// When the throttle store has failed to answer three times in a row, about two alerts or more, one alert at a time
// asks, with pauses that double up to a minute.
//
// Whether an alert is older than GiveUp is decided by the store's clock. For an alert that
// waits, the replica adds its monotonic clock to the store's time when it last saw it, and
// asks the store before it gives the alert up.
package delivery
