// What an application does with the official client. The last line says what it saw, as JSON.
import {
  EventHubBufferedProducerClient, EventHubConsumerClient, EventHubProducerClient,
  earliestEventPosition, latestEventPosition,
} from "@azure/event-hubs";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";

const [connection, storage, container, wanted] = process.argv.slice(2);
const consumer = (options) => new EventHubConsumerClient("$Default", connection, options);
const text = (body) => (Buffer.isBuffer(body) ? body.toString() : body); // other clients send bytes
const bodies = (events) => events.map((e) => text(e.body));

// receive returns the first events of a partition, or of all with a processor, from a position. It stops then, unless
// it is to hold on: the error that ends it later is in ended.
function receive(client, count, { partition, hold = false, onEvents, ...options }) {
  let ended;
  const error = new Promise((resolve) => { ended = resolve; });
  const came = new Promise((resolve, reject) => {
    const events = [];
    const handlers = {
      async processEvents(received, context) {
        await onEvents?.(received, context);
        events.push(...received);
        if (events.length >= count) resolve(events);
      },
      async processError(e) { ended(e.message); reject(e); },
    };
    const rest = { maxWaitTimeInSeconds: 1, ...options };
    if (partition === undefined) client.subscribe(handlers, rest);
    else client.subscribe(partition, handlers, rest);
  });
  came.catch(() => {});
  return { came: hold ? came : came.finally(() => client.close()), ended: error };
}

// send sends one by one and in batches, to any partition, to one, and by key.
async function send() {
  const producer = new EventHubProducerClient(connection);
  const hub = await producer.getEventHubProperties();
  const empty = await producer.getPartitionProperties("1");
  await producer.sendBatch([{ body: "any" }]);
  for (const body of ["0", "1", "2", "3"]) {
    await producer.sendBatch([{ body }], { partitionId: "1" });
    await new Promise((resolve) => setTimeout(resolve, 5)); // each has its own millisecond
  }
  await producer.sendBatch([{ body: "list 1" }, { body: "list 2" }], { partitionKey: "oven-7" });
  const batch = await producer.createBatch({ partitionKey: "oven-7" });
  if (!batch.tryAdd({ body: "batch", properties: { kind: "reading" } })) throw new Error("the batch is full");
  await producer.sendBatch(batch);
  const full = await producer.getPartitionProperties("1");
  await producer.close();
  return {
    hub: hub.name, partitions: hub.partitionIds, empty: empty.isEmpty, last: full.lastEnqueuedSequenceNumber,
  };
}

// sendBuffered has the client choose the partition of the key, not the hub.
async function sendBuffered() {
  const placed = [];
  const producer = new EventHubBufferedProducerClient(connection, {
    async onSendEventsSuccessHandler({ partitionId }) { placed.push(partitionId); },
    async onSendEventsErrorHandler({ error }) { placed.push(String(error)); },
  });
  await producer.enqueueEvent({ body: "buffered" }, { partitionKey: "pump-3" });
  await producer.close({ flush: true });
  return placed;
}

async function startEverywhere() {
  const read = (count, startPosition) => receive(consumer(), count, { partition: "1", startPosition }).came;
  const all = await read(4, earliestEventPosition);
  const { offset, sequenceNumber, enqueuedTimeUtc } = all[2];
  const starts = { "at the start": bodies(all) };
  for (const [name, count, position] of [
    ["at an offset", 2, { offset, isInclusive: true }],
    ["after an offset", 1, { offset }],
    ["at a number", 2, { sequenceNumber, isInclusive: true }],
    ["after a number", 1, { sequenceNumber }],
    ["at a time", 2, { enqueuedOn: new Date(enqueuedTimeUtc.getTime() - 1) }],
    ["at the end", 1, { ...latestEventPosition, isInclusive: true }],
  ]) starts[name] = bodies(await read(count, position));
  return starts;
}

// epochs says what a reader hears whose partition a higher epoch takes, and one whose epoch is lower.
async function epochs() {
  const clients = [1, 2, 1].map(() => consumer({ retryOptions: { maxRetries: 0 } }));
  const open = (client, ownerLevel) => receive(client, 1, {
    partition: "1", startPosition: earliestEventPosition, ownerLevel, hold: true,
  });
  const owner = open(clients[0], 1);
  await owner.came;
  const thief = open(clients[1], 2);
  const stolen = await owner.ended;
  await thief.came;
  const refused = await open(clients[2], 1).ended;
  for (const client of clients) await client.close();
  return { stolen: [stolen], refused: [refused] };
}

async function lastEnqueued() {
  let last;
  await receive(consumer(), 1, {
    partition: "1", startPosition: earliestEventPosition, trackLastEnqueuedEventProperties: true,
    async onEvents(events, context) { if (events.length > 0) last = context.lastEnqueuedEventProperties.sequenceNumber; },
  }).came;
  return last;
}

// processAll goes on where the checkpoints in the container are, and leaves its own.
async function processAll(count) {
  const store = new BlobCheckpointStore(new ContainerClient(storage, container));
  const client = new EventHubConsumerClient("$Default", connection, store, {
    loadBalancingOptions: { strategy: "greedy", updateIntervalInMs: 1000 },
  });
  const { came } = receive(client, count, {
    startPosition: earliestEventPosition,
    async onEvents(events, context) { if (events.length > 0) await context.updateCheckpoint(events.at(-1)); },
  });
  return bodies(await came).sort();
}

const saw = { sent: await send(), buffered: await sendBuffered(), starts: await startEverywhere(), epochs: await epochs() };
saw.last = await lastEnqueued();
saw.processed = await processAll(Number(wanted));
console.log("saw " + JSON.stringify(saw));
