package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// A message as a device sends it, a minute after the one before.
type sent struct {
	device, body      string
	module, component string
	properties        map[string]any
}

// What devices send by public reports, named as there, and what the worker says with the settings that people would use: +
// and the value for an alert, - for a recovery.
func TestWhatDevicesSend(t *testing.T) {
	const (
		speed = `{"NodeId":"nsu=KEP;s=Ch1.Boiler Speed","DisplayName":"Boiler Speed","Value":{"Value":1450}}`
		cold  = `{"NodeId":"nsu=KEP;s=Ch1.Water","DisplayName":"Water Temperature","Value":{"Value":37.1}}`
		hot   = `{"NodeId":"nsu=KEP;s=Ch1.Water","DisplayName":"Water Temperature","Value":{"Value":91.5}}`
		senML = `[{"bn":"urn:dev:mac:0024befffe804ff1/","bt":1290000000.0,"n":"volt","u":"V","v":230.2},{"n":"temp","u":"Cel","v":%v}]`
		lpp   = `{"eui":"ble-1","format":"json","data":[{"channel":5,"unit":"p","value":100,"type":"batt"},{"channel":3,"unit":"c","value":%v,"type":"temp"}]}`
		modb  = `{"PublishTimestamp":"2026-11-28 02:00:30","Content":[{"HwId":"CerboGX","Data":[{"CorrelationId":"c","SourceTimestamp":"2026-11-28 02:00:22","Values":[` +
			`{"DisplayName":"Power to loads","Address":"300818","Value":"2230"},{"DisplayName":"Battery temperature","Address":"300262","Value":"%v"}]}]}]}`
		tasmota = `{"Time":"2026-11-28T02:00:00","DS18B20-1":{"Id":"01131B5A0BDA","Temperature":21.2},"DS18B20-2":{"Id":"0114556F5BAA","Temperature":91.5},"TempUnit":"C"}`
		board   = `{"Device A":[{"ts":946684800000,"values":{"temperature":42}},{"ts":946684801000,"values":{"temperature":91}}],"Device B":[{"ts":946684800000,"values":{"temperature":20}}]}`
		pubSub  = `{"MessageId":"18","MessageType":"ua-data","Messages":[{"DataSetWriterId":"w1","Payload":{"nsu=http://plant.example/Boiler/;s=Water.Temperature":{"Value":91.5},"ns=2;s=Speed":{"Value":1450}}}]}`
	)
	say := func(bodies ...string) (all []sent) {
		for _, body := range bodies {
			all = append(all, sent{device: "d", body: body})
		}
		return all
	}
	turns := func(a, b sent, n int) (all []sent) {
		for range n {
			all = append(all, a, b)
		}
		return all
	}
	of := func(format string, value any) string { return fmt.Sprintf(format, value) }
	stored := func() string {
		var all []string
		for m := range 10 {
			all = append(all, fmt.Sprintf(`{"timestamp":"1999-12-31T23:%02d:00Z","temperature":%d}`, m, 85+m))
		}
		return "[" + strings.Join(all, ",") + "]"
	}

	for _, tt := range []struct {
		name string
		env  string // variables, beside TEMPERATURE_THRESHOLD=80 unless there are rules
		rule string // of a rule with window 1s that is called hot, without name
		send []sent
		want string
	}{
		// One device, several things that are measured.
		{"iot-edge-opc-publisher-v1#115", "", "field: Value.Value, above: 80, only: {DisplayName: Water Temperature}", say("["+speed+","+cold+"]", "["+speed+","+hot+"]"), "d +91.5"},
		{"iot-edge-opc-publisher-v1#115, with each", "", "each: ., field: Value.Value, above: 80, sensor: DisplayName, only: {DisplayName: Water Temperature}",
			say("["+speed+","+cold+"]", "["+speed+","+hot+"]"), "d / Water Temperature +91.5"},
		{"Industrial-IoT#144, sustained", "", "field: Value.Value, above: 80, for: 2m, sensor: DisplayName, only: {DisplayName: Water Temperature}", say(hot, speed, hot, speed, hot), "d / Water Temperature +91.5, d / Water Temperature +91.5"},
		{"Industrial-IoT#144, recoveries", "", "field: Value.Value, above: 80, resolved: true, repeat: never, sensor: DisplayName, only: {DisplayName: Water Temperature}", say(hot, speed, hot, speed, cold), "d / Water Temperature +91.5, d / Water Temperature -37.1"},
		{"iot-edge-modbus#97", "", "field: Content.Data.Values.Value, above: 80, only: {Content.Data.Values.DisplayName: Battery temperature}", say(of(modb, 31), of(modb, 91)), "d +91"},
		{"iot-edge-modbus#97, with each", "", "each: Content.Data.Values, field: Value, above: 80, sensor: [HwId, DisplayName]", say(of(modb, 31)), "d / CerboGX/Power to loads +2230"},
		{"Cayenne", "", "field: data.value, above: 80, only: {data.type: temp}", say(of(lpp, 21.5), of(lpp, 91.5)), "d +91.5"},
		{"thingsml-c-library#6", "", "field: v, above: 80, only: {n: temp}", say(of(senML, 23.1), of(senML, 91.5)), "d +91.5"},
		{"azure-sdk-for-c#1762", "", "field: temperature, above: 80, resolved: true, repeat: never, sensor: $component",
			turns(sent{device: "d", component: "thermostat1", body: `{"temperature":91.5}`}, sent{device: "d", component: "thermostat2", body: `{"temperature":21}`}, 4), "d / thermostat1 +91.5"},
		{"azure-sdk-for-c#1762, sustained", "", "field: temperature, above: 80, for: 5m, repeat: never, sensor: $component",
			turns(sent{device: "d", component: "thermostat1", body: `{"temperature":91.5}`}, sent{device: "d", component: "thermostat2", body: `{"temperature":21}`}, 4), "d / thermostat1 +91.5"},
		{"azure-sdk-for-c#1762, one component", "", "field: temperature, above: 80, repeat: never, only: {$component: thermostat1}", []sent{{device: "d", component: "thermostat1", body: `{"temperature":91.5}`}}, "d +91.5"},
		{"azure-docs#72932", "", "field: temperature, above: 80, resolved: true, repeat: never, sensor: $module",
			turns(sent{device: "d", module: "furnace", body: `{"temperature":91.5}`}, sent{device: "d", module: "room", body: `{"temperature":21}`}, 4), "d / furnace +91.5"},
		{"iotedge#3933", "", "field: temperature, above: 80, sensor: deviceId", say(`{"deviceId":"ble-a","temperature":91.5}`, `{"deviceId":"ble-b","temperature":95}`, `{"deviceId":"ble-c","temperature":20}`), "d / ble-a +91.5, d / ble-b +95"},
		{"iotedge#3933, in a property", "", "field: temperature, above: 80, for: 2m, repeat: never, sensor: sensor",
			turns(sent{device: "d", body: `{"temperature":91.5}`, properties: map[string]any{"sensor": "ble-a"}}, sent{device: "d", body: `{"temperature":20}`, properties: map[string]any{"sensor": "ble-c"}}, 3), "d / ble-a +91.5"},
		{"iotedge#3933, per in the body", "", "field: temperature, above: 80, per: deviceId, resolved: false", say(`{"deviceId":"ble-a","temperature":91.5}`, `{"deviceId":"ble-b","temperature":95}`), "d +91.5, d +95"},
		{"Tasmota#4147", "", "each: DS18B20-*, field: Temperature, above: 80, sensor: $key, only: {TempUnit: C}", say(tasmota), "d / DS18B20-2 +91.5"},
		{"ThingsBoard's gateway", "TIME_PROPERTY=body:ts", `each: "*", field: values.temperature, above: 80, sensor: $key`, say(board), "d / Device A +91"},
		{"OPC PubSub", "", "each: Messages.Payload.*, field: Value, above: 80, sensor: $key, only: {$key: 'nsu=http://plant.example/Boiler/;s=Water.Temperature'}", say(pubSub), "d / nsu=http://plant.example/Boiler/;s=Water.Temperature +91.5"},
		{"Industrial-IoT#2374", "TEMPERATURE_FIELD=Messages.Payload.nsu=http://plant.example/Boiler/;s=Water.Temperature.Value", "", say(pubSub), "d +91.5"},
		{"names nobody knows before", "", "each: sensors.*, field: ., above: 80, sensor: $key", say(`{"sensors":{"28-0000a1":91.5,"28-0000b2":20}}`), "d / 28-0000a1 +91.5"},
		{"quality of OPC UA", "", "each: ., field: v, above: 80, valid: {q: [good, 192, true]}", say(`[{"v":99,"q":"bad"},{"v":98,"q":0},{"v":91,"q":192}]`), "d +91"},

		// Several readings in one message.
		{"azure-docs#83286", "TIME_PROPERTY=body:timestamp", "each: ., field: temperature, above: 80, for: 5m, repeat: never", say(stored()), "d +90"},
		{"azure-docs#83286, one time for all", "TIME_PROPERTY=body:ts", "each: values, field: ., above: 80, for: 2m, repeat: never", say(`{"ts":946684800,"values":[91,92]}`, `{"ts":946684980,"values":[93,20]}`), "d +93"},
		{"ends normal", "", "each: ., field: temperature, above: 80, resolved: true", say(`[{"temperature":91},{"temperature":20}]`), "d +91, d -20"},
		{"azure-sdk-for-c#2032", "", "", say(`[{"temperature":20,},{"temperature":91.5,},]`), "d +91.5"},
		{"azure-sdk-for-c#2032, with each", "", "each: ., field: temperature, above: 80, resolved: true, repeat: never", say(`[{"temperature":91.5}]`, `[{"temperature":20,},{"temperature":21,},]`, `[{"temperature":22}]`), "d +91.5, d -22"},
		{"objects without brackets", "", "", say(`{"NodeId":"a","temperature":20},{"NodeId":"b","temperature":91.5}`), "d +91.5"},
		{"home-assistant#42393", "", "", say(`[{"temperature":20},{"x":None,"ok":True,"temperature":91.5}]`), "d +91.5"},
		{"openhab-addons#14118", "", "", say(`{"temperature":80,9,"humidity":40,2}`, `{"temperature":"91,5"}`), "d +91.5"},

		// Almost JSON, and not JSON.
		{"azure-docs#51723", "", "", say(`{ Temperature: 4095}`), "d +4095"},
		{"home-assistant#42393, str(dict)", "TEMPERATURE_FIELD=temp", "", say(`{'connected': True, 'hum': 66.5, 'temp': 91.8}`), "d +91.8"},
		{"azure-sdk-for-c#2172", "", "", say(`{\"temperature\":91.5,\"id\":\"a\"}`), "d +91.5"},
		{"iot-edge-opc-publisher-v1#138", "TEMPERATURE_FIELD=Value.Value.sensordata.msrvalue", "", say(`{"NodeId":"nsu=http://x;i=2","Value":{"Value":"{\"sensordata\":[{\"msrname\":\"t4012\",\"msrvalue\":91.5}]}"}}`), "d +91.5"},
		{"iot-edge-opc-publisher-v1#138, with each", "", "each: Value.Value.sensordata, field: msrvalue, above: 80, sensor: msrname", say(`{"NodeId":"nsu=http://x;i=2","Value":{"Value":"{\"sensordata\":[{\"msrname\":\"t4012\",\"msrvalue\":91.5}]}"}}`), "d / t4012 +91.5"},
		{"mqtt2influxdb#14", "TEMPERATURE_FIELD=.", "", say(`91.5`), "d +91.5"},
		{"azure-iot-explorer#498", "TEMPERATURE_FIELD=0", "", say(`[91.5,40.2]`), "d +91.5"},
		{"azure-docs#13672", "", "", say(unhex("789cab562a49cd2d482d4a2c292d4a55b2b234d433ad05003f0d05c1")), "d +91.5"},
		{"positions", "", "each: datapoints, field: 1, above: 80, sensor: 2", say(`{"datapoints":[[1586260104000,21.5,3],[1586260105000,91.5,4]]}`), "d / 4 +91.5"},

		// What works without a word.
		{"azure-sphere-samples#128", "", "", say(`{ "Temperature": "91.30" }`), "d +91.3"},
		{"iot-edge-v1's simulated sensor", "TEMPERATURE_FIELD=machine.temperature", "", say(`{"machine":{"temperature":91.65,"pressure":4.94},"ambient":{"temperature":21.19},"timeCreated":"2026-11-28T02:32:32.2731850+00:00"}`), "d +91.65"},
		{"iotedge-lorawan-starterkit#1357", "TEMPERATURE_FIELD=data.temperature TIME_PROPERTY=body:edgets", "", say(`{"data":{"temperature":91.7},"edgets":946684800000}`), "d +91.7"},
		{"lorawan-stack-docs#770", "TEMPERATURE_FIELD=uplink_message.decoded_payload.TempC_SHT TIME_PROPERTY=body:received_at", "",
			say(`{"end_device_ids":{"device_id":"lht65-1"},"received_at":"2000-01-01T00:00:00.123456789Z","uplink_message":{"decoded_payload":{"TempC_SHT":91.4},"rx_metadata":[{"rssi":-50}]}}`), "d +91.4"},
		{"azure-docs#33801", "", "field: IotData.temperature, above: 176, only: {IotData.temperature_unit: F}", say(`{"IotData":{"temperature":181.3,"temperature_unit":"F"}}`, `{"IotData":{"temperature":181.3,"temperature_unit":"C"}}`), "d +181.3"},
		{"azure-sdk-for-c#2294", "TEMPERATURE_FIELD=temp.value", "", say(`{"temp":{"value":91.02}`), "d +91.02"},
		{"MXChip", "", "", say(`{"messageId":1,"deviceId":"AZ3166","temperature":91.2999990000000,"humidity":47.0000000000000}`), "d +91.299999"},

		// Shapes of other systems.
		{"nested arrays", "", "each: racks.modules.cells, field: t, above: 80, sensor: [rack, module, id]", say(`{"racks":[{"rack":1,"modules":[{"module":"A","cells":[{"id":1,"t":40},{"id":2,"t":91}]},{"module":"B","cells":[{"id":1,"t":92}]}]}]}`), "d / 1/A/2 +91, d / 1/B/1 +92"},
		{"a twin's reported properties", "", "each: properties.reported.*, field: temperature, above: 80, sensor: $key", say(`{"properties":{"reported":{"$metadata":{"$lastUpdated":"x"},"$version":4,"heater":{"temperature":91.5},"cooler":{"temperature":4}}}}`), "d / heater +91.5"},
		{"Sparkplug", "TIME_PROPERTY=body:timestamp", "each: metrics, field: value, above: 80, sensor: name, only: {name: 'Boiler/Temp'}", say(`{"timestamp":946684800000,"metrics":[{"name":"Boiler/Temp","timestamp":946684800000,"value":91.5},{"name":"Boiler/Speed","timestamp":946684800000,"value":1450}],"seq":2}`), "d / Boiler/Temp +91.5"},
		{"OPC UA's variants", "", "each: ., field: Value.Body, above: 80, sensor: NodeId.Id, valid: {StatusCode.Code: [0]}", say(`[{"NodeId":{"Id":"T"},"Value":{"Type":10,"Body":91.5}},{"NodeId":{"Id":"U"},"Value":{"Body":92},"StatusCode":{"Code":2147483648}}]`), "d / T +91.5"},
		{"Kepware's IoT Gateway", "", "each: values, field: v, above: 80, sensor: id, valid: {q: [true]}", say(`{"timestamp":946684800000,"values":[{"id":"Ch.D.T","v":91.5,"q":true,"t":946684800000},{"id":"Ch.D.U","v":95,"q":false,"t":946684800000}]}`), "d / Ch.D.T +91.5"},
		{"The Things Stack, normalized", "", "each: uplink_message.normalized_payload, field: air.temperature, above: 80, sensor: end_device_ids.device_id", say(`{"end_device_ids":{"device_id":"eui-1"},"uplink_message":{"normalized_payload":[{"air":{"temperature":91.5}}]}}`), "d / eui-1 +91.5"},
		{"ChirpStack", "", "each: object.temperatureSensor.*, field: ., above: 80, sensor: [deviceInfo.devEui, $key]", say(`{"deviceInfo":{"devEui":"0101"},"object":{"temperatureSensor":{"1":91.5,"2":20}},"rxInfo":[{"rssi":-50}]}`), "d / 0101/1 +91.5"},
		{"Shelly", "", "each: 'params.temperature:*', field: tC, above: 80, sensor: $key", say(`{"method":"NotifyStatus","params":{"ts":946684800.12,"temperature:100":{"id":100,"tC":91.5},"temperature:101":{"id":101,"tC":20}}}`), "d / temperature:100 +91.5"},
		{"IoT Central's components", "", "field: telemetry.temperature, above: 80, sensor: component", say(`{"applicationId":"a","component":"thermostat1","deviceId":"x","enqueuedTime":"2000-01-01T00:00:00Z","telemetry":{"temperature":91.5}}`), "d / thermostat1 +91.5"},
		{"units beside the value", "", "field: temperature.value, above: 80, only: {temperature.unit: C}", say(`{"temperature":{"value":181,"unit":"F"}}`, `{"temperature":{"value":91.5,"unit":"C"}}`), "d +91.5"},
		{"degree signs", "", "field: t, above: 80, unit: °C", say(`{"t":"91 \u2103"}`, `{"t":"92C"}`, "{\"t\":\"93 \xb0C\"}", `{"t":"94,5 Â°C"}`, `{"t":"95 \u2109"}`), "d +91, d +92, d +93, d +94.5"},
		{"two mu", "", "field: t, above: 80, unit: \u00b5g/m³", say("{\"t\":\"91.5 \u03bcg/m³\"}"), "d +91.5"},
		{"two of one sensor, the newest first", "TIME_PROPERTY=body:ts", "each: r, field: t, above: 80, resolved: true, repeat: never, sensor: n", say(`{"r":[{"n":"a","t":20,"ts":946684700},{"n":"a","t":91,"ts":946684600}]}`), "d / a +91, d / a -20"},
		{"times as names", "TIME_PROPERTY=body:$key", "each: history.*, field: ., above: 80, for: 1m, repeat: never", say(`{"history":{"1999-12-31T23:58:00Z":91,"1999-12-31T23:59:30Z":92}}`), "d +92"},
		{"cut off between sensors", "", "each: r, field: t, above: 80, resolved: true, repeat: never, sensor: n", say(`{"r":[{"n":"a","t":91}]}`, `{"r":[{"n":"a","t":20},{"n":"b","t":2`, `{"r":[{"n":"b","t":95},{"n":"a","t":2`), "d / a +91, d / b +95"},
		{"what is no reading calms nobody", "", "each: r, field: t, above: 80, sensor: n, repeat: never, resolved: true, valid: {from: -40, to: 150}",
			say(`{"r":[{"n":"a","t":91}]}`, `{"r":[null,5,{"n":"a"},{"n":"a","t":null},{"n":"a","t":"err"},{"n":"a","t":-127},{"n":"a","t":NaN}]}`, `{"r":[]}`, `{"status":"ok"}`), "d / a +91"},

		// Around the payload.
		{"azure-sdk-for-c#1102", "TIME_PROPERTY=body:ts", "field: temperature, above: 80, for: 1h", say(`{"temperature":91.5,"ts":"1999-12-31T15:00:00-0700"}`, `{"temperature":92.5,"ts":946681200000000}`, `{"temperature":93.5,"ts":946684800000000000}`), "d +92.5, d +93.5"},
		{"azure-docs#17148", "", "", []sent{{device: "d", body: `{"msg":"hello"}`, properties: map[string]any{"temperature": "91.5"}}}, "d +91.5"},
		{"without a device", "", "", []sent{{body: `{"deviceId":"31edabe6","telemetry":{"temperature":91.5}}`}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := backtested(t, tt.env, tt.rule, tt.send); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func unhex(text string) string {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// backtested returns what a worker with these settings says about messages.
func backtested(t *testing.T, env, rule string, messages []sent) string {
	t.Helper()
	settings := map[string]string{"THROTTLE_WINDOW": "1s", "TEMPERATURE_THRESHOLD": "80"}
	if rule != "" {
		settings["RULES"] = "rules:\n- {name: hot, window: 1s, " + rule + "}\n"
		delete(settings, "TEMPERATURE_THRESHOLD")
	}
	for _, one := range strings.Fields(env) {
		name, value, _ := strings.Cut(one, "=")
		settings[name] = value
	}
	c, err := config.LoadRules(settings, false)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	b, err := partition.NewBacktest(c.Rules(), []partition.Receiver{{}}, partition.Observer{Notice: func(n partition.BacktestNotice) {
		sign := "+"
		if n.Recovery {
			sign = "-"
		}
		got = append(got, fmt.Sprintf("%v %s%v", sensor.ID{Device: n.Device, Name: n.Sensor}, sign, n.Value))
	}})
	if err != nil {
		t.Fatal(err)
	}
	var events []telemetry.Event
	for i, m := range messages {
		at := time.Date(2000, 1, 1, 0, i, 0, 0, time.UTC)
		events = append(events, telemetry.Event{
			Position: telemetry.Position{Sequence: int64(i), Offset: fmt.Sprint(i), Time: at}, Enqueued: at, MessageSource: "Telemetry",
			Device: m.device, Module: m.module, Component: m.component, Body: []byte(m.body), Properties: telemetrytest.Properties(m.properties),
		})
	}
	b.Take("0", events)
	b.Finish()
	return strings.Join(got, ", ")
}
