package busytest

// Pause is what a test need not wait for.
var Pause = &pause
