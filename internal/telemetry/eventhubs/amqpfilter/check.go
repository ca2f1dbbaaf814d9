package amqpfilter

import "encoding/binary"

// Sections of a message.
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionAnnotations         = 0x72
	sectionProperties          = 0x73
	sectionApplication         = 0x74
	sectionData                = 0x75
	sectionSequence            = 0x76
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// check returns why the library cannot take a message, nil if it can, and what was
// found in it. p aliases the message.
func check(message []byte, p *place) error {
	w := walker{b: message}
	for len(w.b) > 0 {
		d := w
		code, err := d.descriptor()
		if err != nil || len(w.b) < 3 {
			return errSection
		}
		section := byte(code) // the library looks at the last byte alone
		before := d.b
		switch section {
		case sectionHeader:
			err = w.composite(0, header, nil)
		case sectionProperties:
			err = w.composite(0, properties, p.properties[:])
		default:
			w = d
			err = w.section(section, p)
		}
		if err != nil {
			return err
		}
		p.section(section, before[:len(before)-len(w.b)])
	}
	return nil
}

// section takes note of a section, with what follows its descriptor.
func (p *place) section(code byte, content []byte) {
	p.saw(code)
	if content[0] == codeNull {
		return
	}
	switch code {
	case sectionApplication:
		alone := walker{b: content}
		if alone.textDict(0) != nil { // its sizes are wrong, which the library sees only at the end of a message
			p.sections |= sectionOdd
		}
		p.application = content
	case sectionData:
		p.body, _ = bytesOf(content)
	}
}

// section reads what follows a section's descriptor.
func (w *walker) section(code byte, p *place) error {
	switch code {
	case sectionDeliveryAnnotations, sectionAnnotations, sectionApplication, sectionData, sectionSequence, sectionValue, sectionFooter:
	default:
		return errSection
	}
	if w.null() {
		return nil
	}
	switch code {
	case sectionApplication:
		return w.textDict(0)
	case sectionData:
		return w.field(0, fieldBinary)
	case sectionSequence:
		return w.list(0)
	case sectionValue:
		_, err := w.value(0)
		return err
	}
	n, err := w.mapCount()
	if err != nil {
		return err
	}
	if code != sectionAnnotations {
		return w.entries(n, 0, nil)
	}
	p.annotations = annotations{} // of two sections the last one counts
	return w.entries(n, 0, p)
}

// A place is what a message says of its place in the partition, of its device and of
// the rest that the worker reads.
type place struct {
	annotations
	properties  [8][]byte // encoded values, up to the content encoding; nil where there is none
	application []byte    // an encoded map; nil where there is none
	body        []byte
	sections    uint32 // bits of those that are there
}

// Indexes of properties.
const (
	propertyContentType     = 6
	propertyContentEncoding = 7
)

// annotations are encoded values, nil where there is none. Of one that comes twice the
// last counts, as for the library.
type annotations struct {
	sequence, offset, enqueued, key, device, source []byte
}

// annotation takes note of an encoded annotation.
func (p *place) annotation(key, value []byte) {
	name, ok := textOf(key)
	if !ok {
		return
	}
	switch string(name) {
	case "x-opt-sequence-number":
		p.sequence = value
	case "x-opt-offset":
		p.offset = value
	case "x-opt-enqueued-time":
		p.enqueued = value
	case "x-opt-partition-key":
		p.key = value
	case "iothub-connection-device-id":
		p.device = value
	case "iothub-message-source":
		p.source = value
	}
}

// event returns why azeventhubs cannot make an event of a message that the library
// takes, nil if it can. On the way it loses the events that came before.
func (p *place) event() error {
	if _, ok := intOf(p.sequence); !ok {
		return errSequence
	}
	if _, ok := textOf(p.key); p.key != nil && !ok {
		return errPartitionKey
	}
	if _, ok := textOf(p.offset); p.offset != nil && !ok {
		return errOffset
	}
	if _, ok := timeOf(p.enqueued); p.enqueued != nil && !ok {
		return errEnqueued
	}
	return nil
}

// textOf returns what an encoded string or symbol says.
func textOf(b []byte) (text []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	switch b[0] {
	case codeString8, codeSymbol8:
		return b[2:], true
	case codeString32, codeSymbol32:
		return b[5:], true
	}
	return nil, false
}

// bytesOf returns what an encoded binary holds.
func bytesOf(b []byte) (content []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	switch b[0] {
	case codeBinary8:
		return b[2:], true
	case codeBinary32:
		return b[5:], true
	}
	return nil, false
}

// intOf returns an encoded integer if it is of a type with a sign.
func intOf(b []byte) (n int64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch b[0] {
	case codeByte, codeSmallInt, codeSmallLong:
		return int64(int8(b[1])), true
	case codeShort:
		return int64(int16(binary.BigEndian.Uint16(b[1:]))), true
	case codeInt:
		return int64(int32(binary.BigEndian.Uint32(b[1:]))), true
	case codeLong:
		return int64(binary.BigEndian.Uint64(b[1:])), true
	}
	return 0, false
}

// timeOf returns an encoded timestamp, in milliseconds.
func timeOf(b []byte) (ms int64, ok bool) {
	if len(b) == 0 || b[0] != codeTimestamp {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[1:])), true
}

// ulongOf returns an encoded ulong.
func ulongOf(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch b[0] {
	case codeUlong0:
		return 0, true
	case codeSmallUlong:
		return uint64(b[1]), true
	case codeUlong:
		return binary.BigEndian.Uint64(b[1:]), true
	}
	return 0, false
}
