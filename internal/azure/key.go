package azure

import "strconv"

// Key is the inverse of Name. It is false for a name that is the hash of its key, and for
// one that Name does not make.
func Key(name string) (key string, ok bool) {
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '~' {
			if i+2 >= len(name) {
				return "", false
			}
			n, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			c = byte(n)
			i += 2
		}
		b = append(b, c)
	}
	key = string(b)
	return key, Name(key) == name
}
