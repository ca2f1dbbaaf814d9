// What an application does with the official client. The last line says what it saw, as JSON: see client.py.
import com.azure.messaging.eventhubs.*;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.*;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;

public class Client {
    static final Duration LIMIT = Duration.ofSeconds(60); // for what should take one second
    static String connection;

    static EventHubClientBuilder client() {
        return new EventHubClientBuilder().connectionString(connection).consumerGroup("$Default");
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(e -> json(e.getKey()) + ": " + json(e.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof Collection<?> list) {
            return list.stream().map(Client::json).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value instanceof String text) {
            return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
        }
        return String.valueOf(value);
    }

    static Map<String, Object> send() throws Exception {
        try (var producer = client().buildProducerClient()) {
            var hub = producer.getEventHubProperties();
            boolean empty = producer.getPartitionProperties("1").isEmpty();
            producer.send(List.of(new EventData("any")));
            for (String body : List.of("0", "1", "2", "3")) {
                var event = new EventData(body);
                event.getProperties().put("letter", 'A'); // a char
                producer.send(List.of(event), new SendOptions().setPartitionId("1"));
                Thread.sleep(5); // each has its own millisecond
            }
            producer.send(List.of(new EventData("list 1"), new EventData("list 2")),
                new SendOptions().setPartitionKey("oven-7"));
            var batch = producer.createBatch(new CreateBatchOptions().setPartitionKey("oven-7"));
            batch.tryAdd(new EventData("batch"));
            producer.send(batch);
            var partitions = producer.getPartitionIds().stream().sorted().toList();
            return Map.of("hub", hub.getName(), "partitions", partitions, "empty", empty,
                "last", producer.getPartitionProperties("1").getLastEnqueuedSequenceNumber());
        }
    }

    static List<String> sendBuffered() {
        var placed = new CopyOnWriteArrayList<String>();
        try (var producer = new EventHubBufferedProducerClientBuilder().connectionString(connection)
                .onSendBatchSucceeded(c -> placed.add(c.getPartitionId()))
                .onSendBatchFailed(c -> placed.add(c.getThrowable().toString())).buildClient()) {
            producer.enqueueEvent(new EventData("buffered"), new SendOptions().setPartitionKey("pump-3"));
            producer.flush();
        }
        return placed;
    }

    static List<PartitionEvent> read(int wanted, EventPosition position) {
        try (var consumer = client().buildConsumerClient()) {
            var options = new ReceiveOptions().setTrackLastEnqueuedEventProperties(true);
            return consumer.receiveFromPartition("1", wanted, position, LIMIT, options).stream().toList();
        }
    }

    static List<String> bodies(List<PartitionEvent> events) {
        return events.stream().map(e -> e.getData().getBodyAsString()).toList();
    }

    static Map<String, Object> starts() {
        var all = read(4, EventPosition.earliest());
        var third = all.get(2).getData();
        return Map.of(
            "at the start", bodies(all),
            "after an offset", bodies(read(1, EventPosition.fromOffset(third.getOffset()))),
            "after a number", bodies(read(1, EventPosition.fromSequenceNumber(third.getSequenceNumber()))),
            "at a number", bodies(read(2, EventPosition.fromSequenceNumber(third.getSequenceNumber(), true))),
            "at a time", bodies(read(2, EventPosition.fromEnqueuedTime(third.getEnqueuedTime().minusMillis(1)))));
    }

    // own reads with an epoch until an error and returns that.
    static CompletableFuture<String> own(EventHubConsumerAsyncClient consumer, long epoch, Runnable first) {
        var error = new CompletableFuture<String>();
        consumer.receiveFromPartition("1", EventPosition.earliest(), new ReceiveOptions().setOwnerLevel(epoch))
            .subscribe(e -> first.run(), e -> error.complete(e.getMessage()));
        return error;
    }

    static Map<String, Object> epochs() throws Exception {
        var once = new AmqpRetryOptions().setMaxRetries(0);
        var clients = new ArrayList<EventHubConsumerAsyncClient>();
        for (int i = 0; i < 3; i++) {
            clients.add(client().retryOptions(once).buildAsyncConsumerClient());
        }
        var reading = new CountDownLatch(1);
        var stolen = own(clients.get(0), 1, reading::countDown);
        reading.await(60, TimeUnit.SECONDS);
        own(clients.get(1), 2, () -> { });
        var stolenBy = stolen.get(60, TimeUnit.SECONDS);
        var refused = own(clients.get(2), 1, () -> { }).get(60, TimeUnit.SECONDS);
        clients.forEach(EventHubConsumerAsyncClient::close);
        return Map.of("stolen", List.of(stolenBy), "refused", List.of(refused));
    }

    static List<String> process(String storage, String container, int wanted) throws Exception {
        var blobs = new BlobContainerClientBuilder().connectionString(storage).containerName(container)
            .buildAsyncClient();
        var came = new ConcurrentSkipListSet<String>();
        var all = new CountDownLatch(wanted);
        var processor = new EventProcessorClientBuilder().connectionString(connection).consumerGroup("$Default")
            .checkpointStore(new BlobCheckpointStore(blobs))
            .loadBalancingUpdateInterval(Duration.ofSeconds(1))
            .partitionOwnershipExpirationInterval(Duration.ofSeconds(30))
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY)
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processEvent(context -> {
                came.add(context.getEventData().getBodyAsString());
                context.updateCheckpoint();
                all.countDown();
            })
            .processError(context -> System.err.println(context.getThrowable()))
            .buildEventProcessorClient();
        processor.start();
        all.await(60, TimeUnit.SECONDS);
        processor.stop();
        return List.copyOf(came);
    }

    public static void main(String[] args) throws Exception {
        connection = args[0];
        var saw = new LinkedHashMap<String, Object>();
        saw.put("sent", send());
        saw.put("buffered", sendBuffered());
        saw.put("starts", starts());
        saw.put("epochs", epochs());
        saw.put("last", read(1, EventPosition.earliest()).get(0).getLastEnqueuedEventProperties().getSequenceNumber());
        saw.put("processed", process(args[1], args[2], Integer.parseInt(args[3])));
        System.out.println("saw " + json(saw));
        System.exit(0);
    }
}
