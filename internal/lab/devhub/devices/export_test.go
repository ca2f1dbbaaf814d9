package devices

// NewReplay replays what is no file.
var NewReplay = newReplay
