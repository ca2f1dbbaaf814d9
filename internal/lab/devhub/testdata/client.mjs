// What an application does with the official client: publish, one by one and in a
// batch, ask for properties, and receive. The last line says what it saw.
import {
  EventHubBufferedProducerClient, EventHubConsumerClient, EventHubProducerClient,
  earliestEventPosition, latestEventPosition,
} from "@azure/event-hubs";

const connection = process.argv[2];
const producer = new EventHubProducerClient(connection);
const hub = await producer.getEventHubProperties();
const empty = await producer.getPartitionProperties("0");

const batch = await producer.createBatch({ partitionId: "1" });
for (const body of [{ temperature: 21.5 }, "text"]) {
  if (!batch.tryAdd({ body, properties: { kind: "reading" } })) throw new Error("the batch is full");
}
await producer.sendBatch(batch);
await producer.sendBatch([{ body: { temperature: 99 } }], { partitionKey: "oven/7" });

const consumer = new EventHubConsumerClient("$Default", connection);
const events = [];
await new Promise((resolve, reject) => {
  const subscription = consumer.subscribe(
    {
      async processEvents(received) {
        for (const e of received) events.push({
          body: e.body, properties: e.properties, key: e.partitionKey,
          sequence: e.sequenceNumber, offset: e.offset, enqueued: e.enqueuedTimeUtc.getTime() });
        if (events.length >= 3) subscription.close().then(resolve, reject);
      },
      async processError(error) { reject(error); },
    },
    { startPosition: earliestEventPosition },
  );
});
const full = await consumer.getPartitionProperties("1");
await consumer.close();
await producer.close();

// read receives one event of partition 1 from a position, or the error that ended it. It stops unless it is to hold on.
function read(startPosition, options = {}, hold = false) {
  const client = new EventHubConsumerClient("$Default", connection, { retryOptions: { maxRetries: 0 } });
  let ended;
  const error = new Promise((resolve) => { ended = resolve; });
  const first = new Promise((resolve, reject) => {
    client.subscribe("1", {
      async processEvents([event], context) {
        if (event) resolve({ body: event.body, last: context.lastEnqueuedEventProperties?.sequenceNumber });
      },
      async processError(e) { ended(e.message); reject(e); },
    }, { startPosition, maxBatchSize: 1, ...options });
  });
  first.catch(() => {});
  const close = () => client.close();
  return hold ? { first, error, close } : first.finally(close);
}

const second = events.find((e) => e.body === "text");
const starts = {};
for (const [name, position] of Object.entries({
  "at the start": earliestEventPosition,
  "at the end": { ...latestEventPosition, isInclusive: true },
  "at an offset": { offset: second.offset, isInclusive: true },
  "after a number": { sequenceNumber: second.sequence - 1 },
  "at a number": { sequenceNumber: second.sequence, isInclusive: true },
  "at a time": { enqueuedOn: new Date(second.enqueued - 1) },
})) starts[name] = (await read(position)).body;
const { last } = await read(earliestEventPosition, { trackLastEnqueuedEventProperties: true });

const owner = read(earliestEventPosition, { ownerLevel: 1 }, true);
await owner.first;
const thief = read(earliestEventPosition, { ownerLevel: 2 }, true);
const stolen = await owner.error;
await thief.first;
const late = read(earliestEventPosition, { ownerLevel: 1 }, true);
const refused = await late.error;
for (const client of [owner, thief, late]) await client.close();

const buffered = [];
const buffering = new EventHubBufferedProducerClient(connection, {
  async onSendEventsSuccessHandler({ partitionId }) { buffered.push(partitionId); },
  async onSendEventsErrorHandler({ error }) { buffered.push(String(error)); },
});
await buffering.enqueueEvent({ body: "buffered" }, { partitionKey: "7" });
await buffering.close({ flush: true });

console.log("saw " + JSON.stringify({ hub, empty, full, events, starts, last, stolen, refused, buffered }));
