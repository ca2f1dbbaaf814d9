package ledger

var (
	Encode = encode
	Decode = decode
)
