// What an application does with the official client: publish, one by one and in a
// batch, ask for properties, and receive. The last line says what it saw.
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";

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
        for (const e of received) events.push({ body: e.body, properties: e.properties, key: e.partitionKey, sequence: e.sequenceNumber });
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
console.log("saw " + JSON.stringify({ hub, empty, full, events }));
