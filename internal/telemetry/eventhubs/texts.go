package eventhubs

import "hash/maphash"

const (
	maxTexts   = 1 << 13 // 128 KiB of headers, and at most 2 MiB of text
	maxTextLen = 256     // bytes; longer ones are not kept
)

// texts keeps strings that come again and again, as the ids of devices do, so that they
// are allocated once. The zero value is empty. Not safe for concurrent use.
type texts struct {
	seed maphash.Seed
	kept []string // by hash; a later one replaces an earlier one
}

// get returns b as a string.
func (t *texts) get(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case len(b) > maxTextLen:
		return string(b)
	case t.kept == nil:
		t.seed, t.kept = maphash.MakeSeed(), make([]string, maxTexts)
	}

	kept := &t.kept[maphash.Bytes(t.seed, b)%maxTexts]
	if *kept != string(b) {
		*kept = string(b)
	}

	return *kept
}
