package devhub

import (
	"encoding/binary"
	"math/bits"
)

// byKey returns the partition that all messages with this key go to: the one that an SDK's buffered producer
// chooses, in .NET, Java and JavaScript, by Jenkins' lookup3, folded. Python's takes another one if the hash is negative.
func (h *Hub) byKey(key string) *partition {
	b, c := lookup3([]byte(key))
	i := int(int16(b^c)) % len(h.partitions)

	return h.partitions[max(i, -i)]
}

// lookup3 is Bob Jenkins' hashlittle2, with both of its seeds 0.
func lookup3(data []byte) (b, c uint32) {
	a := 0xdeadbeef + uint32(len(data))
	b, c = a, a
	if len(data) == 0 {
		return b, c
	}

	for len(data) > 12 {
		a += binary.LittleEndian.Uint32(data)
		b += binary.LittleEndian.Uint32(data[4:])
		c += binary.LittleEndian.Uint32(data[8:])
		a, b, c = mix(a, b, c)
		data = data[12:]
	}

	var last [12]byte
	copy(last[:], data)
	a += binary.LittleEndian.Uint32(last[:])
	b += binary.LittleEndian.Uint32(last[4:])
	c += binary.LittleEndian.Uint32(last[8:])

	return final(a, b, c)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - c) ^ bits.RotateLeft32(c, 4)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 6)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 8)
	b += a
	a = (a - c) ^ bits.RotateLeft32(c, 16)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 19)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 4)
	b += a

	return a, b, c
}

func final(a, b, c uint32) (uint32, uint32) {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)

	return b, c
}
