package bloblease

import "alertworker/internal/lease/caslease"

// Name returns the name of key's blob.
var Name = blobName

// Empty returns the metadata of a blob whose key nobody has had yet.
func Empty(key string) map[string]string { return encode(key, caslease.Record{}) }
