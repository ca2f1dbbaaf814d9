package records

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Compress returns content compressed by gzip, quickly rather than well.
func Compress(content []byte) []byte {
	var packed bytes.Buffer
	zip := writers.Get().(*gzip.Writer)
	defer writers.Put(zip)

	zip.Reset(&packed)
	_, _ = zip.Write(content) // as Close, it fails only if the buffer does
	_ = zip.Close()

	return packed.Bytes()
}

// writers are used again: each has tables of more than half a megabyte.
var writers = sync.Pool{New: func() any {
	zip, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for another level
	return zip
}}

// Decompress returns what was compressed. It fails for more than limit bytes, before or after.
func Decompress(packed []byte, limit int) ([]byte, error) {
	tooLarge := fmt.Errorf("it has more than %d bytes", limit)
	if len(packed) > limit {
		return nil, tooLarge
	}

	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, errors.New("it is not compressed by gzip")
	}

	content, err := io.ReadAll(io.LimitReader(zip, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("it cannot be decompressed: %w", err)
	}
	if len(content) > limit {
		return nil, tooLarge
	}

	return content, nil
}
