"""What an application does with the official client. The last line says what it saw, as JSON."""
import json
import sys
import threading
import time

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

connection, storage, container = sys.argv[1:4]
limit = 60  # seconds, for what should take one


def consumer(**options):
    return EventHubConsumerClient.from_connection_string(connection, "$Default", **options)


def read(client, wanted, on_event=None, on_error=None, **options):
    """Receives until so many events came, or an error, and returns their bodies."""
    came, enough = [], threading.Event()

    def take(context, event):
        came.append(event)
        if on_event:
            on_event(context, event)
        if len(came) >= wanted:
            enough.set()

    def fail(context, error):
        if on_error:
            on_error(error)
        enough.set()

    threading.Thread(target=client.receive, args=(take,), kwargs={"on_error": fail, **options}, daemon=True).start()
    if not enough.wait(limit):
        sys.exit("%d events of %d came" % (len(came), wanted))
    return came


def bodies(events):
    return [e.body_as_str() for e in events]


def send():
    """Sends one by one, in a list and in batches, to any partition, to one, and by key."""
    producer = EventHubProducerClient.from_connection_string(connection)
    hub = producer.get_eventhub_properties()
    empty = producer.get_partition_properties("1")
    producer.send_event(EventData("any"))
    for body in "0123":
        producer.send_event(EventData(body), partition_id="1")
        time.sleep(0.005)  # each has its own millisecond
    producer.send_batch([EventData("list 1"), EventData("list 2")], partition_key="oven-7")
    batch = producer.create_batch(partition_key="oven-7")
    batch.add(EventData("batch"))
    producer.send_batch(batch)
    full = producer.get_partition_properties("1")
    producer.close()
    return {
        "hub": hub["eventhub_name"], "partitions": hub["partition_ids"],
        "empty": empty["is_empty"], "last": full["last_enqueued_sequence_number"],
    }


def send_buffered():
    """The client chooses the partition of the key, not the hub."""
    placed, failed = [], []
    producer = EventHubProducerClient.from_connection_string(
        connection, buffered_mode=True,
        on_success=lambda events, partition: placed.append(partition),
        on_error=lambda events, partition, error: failed.append(str(error)),
    )
    producer.send_event(EventData("buffered"), partition_key="pump-3")
    producer.flush(timeout=limit)
    producer.close()
    return placed + failed


def start_everywhere():
    client = consumer()
    all = read(client, 4, partition_id="1", starting_position="-1")
    client.close()
    third = all[2]
    positions = {
        "after an offset": dict(starting_position=third.offset),
        "at an offset": dict(starting_position=third.offset, starting_position_inclusive=True),
        "after a number": dict(starting_position=third.sequence_number),
        "at a number": dict(starting_position=third.sequence_number, starting_position_inclusive=True),
        "at a time": dict(starting_position=third.enqueued_time, starting_position_inclusive=True),
        "at the end": dict(starting_position="@latest", starting_position_inclusive=True),
    }
    came = {"at the start": bodies(all)}
    for name, position in positions.items():
        client = consumer()
        wanted = 1 if name.startswith("after") or name == "at the end" else 2
        came[name] = bodies(read(client, wanted, partition_id="1", **position))
        client.close()
    return came


def epochs():
    """A higher epoch takes the partition, and a lower one is refused."""
    stolen, refused = [], []
    first, second, third = consumer(retry_total=0), consumer(), consumer(retry_total=0)
    lost = threading.Event()

    def lose(error):
        stolen.append(str(error))
        lost.set()

    read(first, 1, on_error=lose, partition_id="1", starting_position="-1", owner_level=1)
    read(second, 1, partition_id="1", starting_position="-1", owner_level=2)
    if not lost.wait(limit):
        sys.exit("the first reader was not told that it lost the partition")
    read(third, 1, on_error=lambda error: refused.append(str(error)),
         partition_id="1", starting_position="-1", owner_level=1)
    for client in first, second, third:
        client.close()
    return {"stolen": stolen[:1], "refused": refused[:1]}


def last_enqueued():
    last = []

    def look(context, event):
        last.append(context.last_enqueued_event_properties["sequence_number"])

    client = consumer()
    read(client, 1, look, partition_id="1", starting_position="-1", track_last_enqueued_event_properties=True)
    client.close()
    return last[0]


def process(wanted):
    """A processor goes on where the checkpoints in the container are, and leaves its own."""
    store = BlobCheckpointStore.from_connection_string(storage, container)
    client = consumer(checkpoint_store=store, load_balancing_interval=1)
    lock = threading.Lock()

    def checkpoint(context, event):
        with lock:
            context.update_checkpoint(event)

    came = read(client, wanted, checkpoint, starting_position="-1")
    client.close()
    return sorted(bodies(came))


saw = {"sent": send(), "buffered": send_buffered(), "starts": start_everywhere(), "epochs": epochs()}
saw["last"] = last_enqueued()
saw["processed"] = process(int(sys.argv[4]))
print("saw " + json.dumps(saw), flush=True)
