package bloblease

// Name returns the name of key's blob.
var Name = blobName
